//! Renaming, reordering, cutting and regrouping of dimensions.

use super::algebra::{repack, same_dims};
use super::linear::{check_dims, describe, extract, field, log2, total};
use super::{LayoutDim, LayoutError, LinearLayout};

/// Sizes as bit counts.
fn to_bits(dims: &[(LayoutDim, u32)]) -> Result<Vec<(LayoutDim, u32)>, LayoutError> {
    let bits = dims.iter().map(|&(dim, size)| Ok((dim, log2("the size of a dimension", size)?)));
    let bits = bits.collect::<Result<Vec<_>, LayoutError>>()?;
    check_dims(&bits)?;
    Ok(bits)
}

/// The entries of `dims` in the order of `names`, which must be the same set.
fn reordered(
    operation: &'static str,
    dims: &[(LayoutDim, u32)],
    names: &[LayoutDim],
) -> Result<Vec<(LayoutDim, u32)>, LayoutError> {
    let find = |name: &LayoutDim| dims.iter().find(|(dim, _)| dim == name).copied();
    let order: Option<Vec<_>> = names.iter().map(find).collect();
    match order {
        Some(order) if same_dims(&order, dims) => Ok(order),
        _ => Err(LayoutError::DimsDiffer { operation, left: describe(dims), right: format!("{names:?}") }),
    }
}

impl LinearLayout {
    /// The same map with the outputs in another order.
    ///
    /// # Errors
    /// `names` is not a reordering of the outputs.
    pub fn transpose_outs(&self, names: &[LayoutDim]) -> Result<LinearLayout, LayoutError> {
        let outs = reordered("transpose_outs", &self.outs, names)?;
        let columns = self.columns.iter().map(|&c| repack(c, &self.outs, &outs, |_| 0)).collect();
        Ok(LinearLayout::from_parts(self.ins.clone(), outs, columns))
    }

    /// The same map with the inputs in another order.
    ///
    /// # Errors
    /// `names` is not a reordering of the inputs.
    pub fn transpose_ins(&self, names: &[LayoutDim]) -> Result<LinearLayout, LayoutError> {
        let ins = reordered("transpose_ins", &self.ins, names)?;
        let columns = ins.iter().flat_map(|&(dim, _)| self.columns(dim).iter().copied()).collect();
        Ok(LinearLayout::from_parts(ins, self.outs.clone(), columns))
    }

    /// The same flattened map with the inputs grouped anew; `dims` are sizes, minor to major.
    ///
    /// # Errors
    /// The total size differs.
    pub fn reshape_ins(&self, dims: &[(LayoutDim, u32)]) -> Result<LinearLayout, LayoutError> {
        let ins = to_bits(dims)?;
        if total(&ins) != self.total_in_bits() {
            return Err(LayoutError::DimsDiffer {
                operation: "reshape_ins",
                left: describe(&self.ins),
                right: describe(&ins),
            });
        }
        Ok(LinearLayout::from_parts(ins, self.outs.clone(), self.columns.clone()))
    }

    /// The same flattened map with the outputs grouped anew; `dims` are sizes, minor to major.
    ///
    /// # Errors
    /// The total size differs.
    pub fn reshape_outs(&self, dims: &[(LayoutDim, u32)]) -> Result<LinearLayout, LayoutError> {
        let outs = to_bits(dims)?;
        if total(&outs) != self.total_out_bits() {
            return Err(LayoutError::DimsDiffer {
                operation: "reshape_outs",
                left: describe(&self.outs),
                right: describe(&outs),
            });
        }
        Ok(LinearLayout::from_parts(self.ins.clone(), outs, self.columns.clone()))
    }

    /// All outputs as one dimension `name`, the first output lowest.
    pub fn flatten_outs(&self, name: LayoutDim) -> LinearLayout {
        let outs = vec![(name, self.total_out_bits())];
        LinearLayout::from_parts(self.ins.clone(), outs, self.columns.clone())
    }

    /// The map that also takes the inputs of `other`; both have the same outputs.
    ///
    /// # Errors
    /// The outputs differ, or an input occurs in both.
    pub fn concat_ins(&self, other: &LinearLayout) -> Result<LinearLayout, LayoutError> {
        if self.outs != other.outs {
            return Err(LayoutError::DimsDiffer {
                operation: "concat_ins",
                left: describe(&self.outs),
                right: describe(&other.outs),
            });
        }
        let ins = [&self.ins[..], &other.ins[..]].concat();
        check_dims(&ins)?;
        let columns = [&self.columns[..], &other.columns[..]].concat();
        Ok(LinearLayout::from_parts(ins, self.outs.clone(), columns))
    }

    /// The map that also gives the outputs of `other`; both have the same inputs.
    ///
    /// # Errors
    /// The inputs differ, or an output occurs in both.
    pub fn concat_outs(&self, other: &LinearLayout) -> Result<LinearLayout, LayoutError> {
        if self.ins != other.ins {
            return Err(LayoutError::DimsDiffer {
                operation: "concat_outs",
                left: describe(&self.ins),
                right: describe(&other.ins),
            });
        }
        let outs = [&self.outs[..], &other.outs[..]].concat();
        check_dims(&outs)?;
        let shift = self.total_out_bits();
        let both = self.columns.iter().zip(&other.columns);
        let columns = both.map(|(&low, &high)| low | high << shift).collect();
        Ok(LinearLayout::from_parts(self.ins.clone(), outs, columns))
    }

    /// Output `dim` with another size: coordinates are taken modulo the size.
    ///
    /// # Errors
    /// The size is no power of two, or the dimension is absent.
    pub fn resize_out(&self, dim: LayoutDim, size: u32) -> Result<LinearLayout, LayoutError> {
        let bits = log2("the size of a dimension", size)?;
        if !self.has_out(dim) {
            return Err(LayoutError::UnknownDim(dim));
        }
        let mut outs = self.outs.clone();
        outs.iter_mut().filter(|(name, _)| *name == dim).for_each(|(_, own)| *own = bits);
        check_dims(&outs)?;
        let cut = |column: &u64| {
            outs.iter().fold(0, |word, &(name, bits)| {
                let value = extract(*column, &field(&self.outs, name)) & ((1 << bits) - 1);
                word | value << field(&outs, name).start
            })
        };
        let columns = self.columns.iter().map(cut).collect();
        Ok(LinearLayout::from_parts(self.ins.clone(), outs, columns))
    }

    /// Output `from` under the name `to`.
    ///
    /// # Errors
    /// `from` is absent, or `to` is there already.
    pub fn rename_out(&self, from: LayoutDim, to: LayoutDim) -> Result<LinearLayout, LayoutError> {
        let outs = renamed(&self.outs, from, to)?;
        Ok(LinearLayout { outs, ..self.clone() })
    }

    /// Without the dimensions of size 1, on both sides.
    pub fn squeeze(&self) -> LinearLayout {
        let kept = |dims: &[(LayoutDim, u32)]| dims.iter().copied().filter(|&(_, bits)| bits > 0).collect();
        LinearLayout::from_parts(kept(&self.ins), kept(&self.outs), self.columns.clone())
    }

    /// The part of the map from `ins` to `outs`, in the order of this layout.
    ///
    /// # Errors
    /// A dimension is absent.
    pub fn sublayout(&self, ins: &[LayoutDim], outs: &[LayoutDim]) -> Result<LinearLayout, LayoutError> {
        if let Some(&dim) = ins.iter().find(|&&dim| !self.has_in(dim)) {
            return Err(LayoutError::UnknownDim(dim));
        }
        if let Some(&dim) = outs.iter().find(|&&dim| !self.has_out(dim)) {
            return Err(LayoutError::UnknownDim(dim));
        }
        let new_ins: Vec<_> = self.ins.iter().copied().filter(|(dim, _)| ins.contains(dim)).collect();
        let new_outs: Vec<_> = self.outs.iter().copied().filter(|(dim, _)| outs.contains(dim)).collect();
        let columns = new_ins.iter().flat_map(|&(dim, _)| self.columns(dim));
        let columns = columns.map(|&c| repack(c, &self.outs, &new_outs, |_| 0)).collect();
        Ok(LinearLayout::from_parts(new_ins, new_outs, columns))
    }

    /// The bits of the flattened output that belong to `out`.
    pub(super) fn out_mask(&self, out: LayoutDim) -> u64 {
        let range = field(&self.outs, out);
        ((1u64 << (range.end - range.start)) - 1) << range.start
    }

    /// Without the zero bases of `dim`; see [`LinearLayout::remove_broadcast`] for what becomes of the values.
    pub fn remove_zero_bases_along(&self, dim: LayoutDim) -> LinearLayout {
        let mut columns = Vec::with_capacity(self.columns.len());
        let mut ins = self.ins.clone();
        for (name, bits) in &mut ins {
            let own = self.columns(*name).iter().copied();
            let before = columns.len();
            columns.extend(own.filter(|&column| *name != dim || column != 0));
            *bits = (columns.len() - before) as u32;
        }
        LinearLayout::from_parts(ins, self.outs.clone(), columns)
    }

    /// The coordinate of `out` is dropped: the layout of what does not depend on it.
    ///
    /// # Errors
    /// The dimension is absent.
    pub fn drop_out(&self, out: LayoutDim) -> Result<LinearLayout, LayoutError> {
        if !self.has_out(out) {
            return Err(LayoutError::UnknownDim(out));
        }
        let ins: Vec<_> = self.ins.iter().map(|&(dim, _)| dim).collect();
        let outs: Vec<_> = self.outs.iter().map(|&(dim, _)| dim).filter(|&dim| dim != out).collect();
        self.sublayout(&ins, &outs)
    }

    /// Whether the map is the identity on each of `dims`, which are inputs and outputs,
    /// and these neither feed nor are fed by other dimensions.
    pub fn is_trivial_over(&self, dims: &[LayoutDim]) -> bool {
        dims.iter().all(|&dim| {
            let start = field(&self.outs, dim).start;
            let mask = self.out_mask(dim);
            self.has_in(dim)
                && self.has_out(dim)
                && self.in_bits(dim) == self.out_bits(dim)
                && self.columns(dim).iter().enumerate().all(|(bit, &c)| c == 1 << (start + bit as u32))
                && self
                    .ins
                    .iter()
                    .filter(|&&(other, _)| other != dim)
                    .all(|&(other, _)| self.columns(other).iter().all(|column| column & mask == 0))
        })
    }

    /// The map on the other dimensions, where it is trivial over `dims`.
    pub fn quotient(&self, dims: &[LayoutDim]) -> Option<LinearLayout> {
        if !self.is_trivial_over(dims) {
            return None;
        }
        let rest = |all: &[(LayoutDim, u32)]| -> Vec<LayoutDim> {
            all.iter().map(|&(dim, _)| dim).filter(|dim| !dims.contains(dim)).collect()
        };
        self.sublayout(&rest(&self.ins), &rest(&self.outs)).ok()
    }
}

fn renamed(dims: &[(LayoutDim, u32)], from: LayoutDim, to: LayoutDim) -> Result<Vec<(LayoutDim, u32)>, LayoutError> {
    if !dims.iter().any(|&(dim, _)| dim == from) {
        return Err(LayoutError::UnknownDim(from));
    }
    let rename = |&(dim, bits): &(LayoutDim, u32)| (if dim == from { to } else { dim }, bits);
    let dims: Vec<_> = dims.iter().map(rename).collect();
    check_dims(&dims)?;
    Ok(dims)
}
