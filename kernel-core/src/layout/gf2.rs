//! Linear algebra over GF(2) on machine words: a vector is a `u64`, addition is XOR.

/// A growing subspace in echelon form, where every stored vector carries a *tag*.
///
/// Tags add up as vectors do, so they can record which generators were combined (one bit each),
/// or the image of the vector under another linear map.
#[derive(Clone, Debug)]
pub(crate) struct Subspace {
    /// `rows[b]` is a vector whose highest set bit is `b`, or zero where there is none.
    rows: [u64; 64],
    tags: [u64; 64],
    rank: u32,
}

impl Subspace {
    /// The subspace that holds only zero.
    pub(crate) fn new() -> Self {
        Subspace { rows: [0; 64], tags: [0; 64], rank: 0 }
    }

    /// The span of `vectors`, each tagged by the bit of its own index.
    ///
    /// A vector that depends on earlier ones is left out, so that [`Subspace::express`] never uses it:
    /// solutions take their free variables to be zero, and the pivots are the earliest columns.
    pub(crate) fn indexed(vectors: &[u64]) -> Self {
        let mut span = Subspace::new();
        for (index, &vector) in vectors.iter().enumerate() {
            span.insert(vector, 1 << index).ok();
        }
        span
    }

    /// The span of `vectors`, without tags.
    pub(crate) fn of(vectors: impl IntoIterator<Item = u64>) -> Self {
        let mut span = Subspace::new();
        for vector in vectors {
            span.insert(vector, 0).ok();
        }
        span
    }

    /// Subtracts rows until `vector` has no leading bit in common with the span.
    /// Returns what is left, and the sum of the tags used.
    fn reduce(&self, mut vector: u64) -> (u64, u64) {
        let mut tag = 0;
        let mut rest = vector;
        while rest != 0 {
            let lead = 63 - rest.leading_zeros() as usize;
            if self.rows[lead] != 0 {
                vector ^= self.rows[lead];
                tag ^= self.tags[lead];
                rest = vector & ((1 << lead) - 1);
            } else {
                rest &= !(1 << lead);
            }
        }
        (vector, tag)
    }

    /// Adds a generator. `Ok` where it enlarges the span;
    /// `Err(tag)` where it does not, with the tag of the zero combination it makes.
    pub(crate) fn insert(&mut self, vector: u64, tag: u64) -> Result<(), u64> {
        let (rest, used) = self.reduce(vector);
        let tag = tag ^ used;
        if rest == 0 {
            return Err(tag);
        }
        let lead = 63 - rest.leading_zeros() as usize;
        self.rows[lead] = rest;
        self.tags[lead] = tag;
        self.rank += 1;
        Ok(())
    }

    /// Whether `vector` lies in the span.
    pub(crate) fn contains(&self, vector: u64) -> bool {
        self.reduce(vector).0 == 0
    }

    /// The tag of `vector` as a sum of generators, where it lies in the span.
    pub(crate) fn express(&self, vector: u64) -> Option<u64> {
        let (rest, tag) = self.reduce(vector);
        (rest == 0).then_some(tag)
    }

    /// The dimension of the span.
    pub(crate) fn rank(&self) -> u32 {
        self.rank
    }
}

/// The dimension of the span of `vectors`.
pub(crate) fn rank(vectors: impl IntoIterator<Item = u64>) -> u32 {
    Subspace::of(vectors).rank()
}

/// A basis of the combinations of `vectors` that are zero: bit `i` of a result chooses `vectors[i]`.
///
/// The highest bit of each result is the dependent vector it explains, and occurs in no other result.
pub(crate) fn nullspace(vectors: &[u64]) -> Vec<u64> {
    let mut span = Subspace::new();
    let relations = vectors.iter().enumerate();
    relations.filter_map(|(index, &v)| span.insert(v, 1 << index).err()).collect()
}

/// A basis of the intersection of the spans of `a` and `b`.
pub(crate) fn intersection(a: &[u64], b: &[u64]) -> Vec<u64> {
    // The tag is the part of a combination that comes from `a`. A vector of `b` that depends on the rest
    // gives `part of a = part of b`, which lies in both.
    let mut span = Subspace::new();
    for &vector in a {
        span.insert(vector, vector).ok();
    }
    let mut found = Subspace::new();
    let mut basis = Vec::new();
    for &vector in b {
        if let Err(shared) = span.insert(vector, 0)
            && found.insert(shared, 0).is_ok()
        {
            basis.push(shared);
        }
    }
    basis
}

/// Unit vectors of `0..dim` that, together with `vectors`, span everything.
pub(crate) fn complement(vectors: &[u64], dim: u32) -> Vec<u64> {
    let mut span = Subspace::of(vectors.iter().copied());
    let units = (0..dim).map(|bit| 1u64 << bit);
    units.filter(|&unit| span.insert(unit, 0).is_ok()).collect()
}

/// XOR of the `columns` that `index` selects, bit by bit.
pub(crate) fn combine(columns: &[u64], mut index: u64) -> u64 {
    let mut sum = 0;
    while index != 0 {
        let bit = index.trailing_zeros() as usize;
        sum ^= columns[bit];
        index &= index - 1;
    }
    sum
}
