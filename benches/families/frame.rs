//! What all contests share: the library as a contender, results of rows, and peers that take a row a program.

use crate::families::tuned::Job;
use std::rc::Rc;
use tilewright::ElementType;
use tilewright::launch;
use tilewright::prelude::*;
use tilewright_bench::cubin::{Argument, Entry};
use tilewright_bench::data::{Input, Segment, Verify, sampled};
use tilewright_bench::element::Element;
use tilewright_bench::record;
use tilewright_bench::shape::{Matrix, Variant};
use tilewright_bench::{Contender, Contest, Failure, How, Stage};
use tilewright_kernels::config::Config;
use tilewright_kernels::{Context, Table, Tensor, TensorView};

/// A function of the library, as it is called.
pub type Call<'a> = Rc<dyn Fn(&Context) -> Result<(), Failure> + 'a>;

/// What a contest is of, and what it costs.
pub struct Row {
    pub work: &'static str,
    pub shape: String,
    pub dtype: &'static str,
    pub bytes: f64,
    pub flops: f64,
}

impl Row {
    /// A work that memory limits.
    pub fn moving(work: &'static str, shape: impl ToString, dtype: &'static str, bytes: usize) -> Row {
        Row { work, shape: shape.to_string(), dtype, bytes: bytes as f64, flops: 0.0 }
    }

    /// The same with so many operations of tensor cores.
    pub fn computing(self, flops: f64) -> Row {
        Row { flops, ..self }
    }

    /// Holds the contest of a peer and the library.
    pub fn hold(
        self,
        stage: &mut Stage,
        outputs: Vec<&dyn Verify>,
        peers: Vec<Contender<'_>>,
        library: Library<'_>,
    ) -> Result<(), Failure> {
        if let Some(job) = Job::asked() {
            return if library.takes_part { job.row(stage, self, outputs, &library.call) } else { Ok(()) };
        }
        let Row { work, shape, dtype, bytes, flops } = self;
        let mut contenders: Vec<Contender<'_>> = peers;
        contenders.extend(library.contenders());
        stage.hold(Contest { work, shape, dtype, bytes, flops, outputs, contenders })
    }
}

/// The library: with what it chooses, and with other configurations.
pub struct Library<'a> {
    device: Device,
    call: Call<'a>,
    tuned: Contender<'a>,
    takes_part: bool,
}

impl<'a> Library<'a> {
    pub fn new(stage: &Stage, call: impl Fn(&Context) -> Result<(), Failure> + 'a) -> Library<'a> {
        let tuned = Contender { name: record::TUNED, configs: Vec::new() };
        Library { device: stage.device(), call: Rc::new(call), tuned, takes_part: true }
    }

    /// The library does not take part.
    pub fn none(stage: &Stage) -> Library<'a> {
        let mut none = Library::new(stage, |_| Ok(()));
        none.takes_part = false;
        none
    }

    /// Tries configurations too, which a table gives for this dtype and these sizes. On the CPU, where they are too large to
    /// be checked quickly, the first alone.
    pub fn tried<C: Config>(self, dtype: ElementType, sizes: &[usize], configs: &[C]) -> Library<'a> {
        let tables = configs.iter().map(|config| {
            let mut table = Table::new();
            table.insert(self.device.name(), dtype, sizes, *config);
            let shown = launch::Config::from(*config).to_string();
            (shown.replace(" = ", "=").replace(',', ""), table)
        });
        let all: Vec<(String, Table)> = tables.collect();
        self.with_tables(all)
    }

    /// Tries these tables too.
    pub fn with_tables(mut self, tables: Vec<(String, Table)>) -> Library<'a> {
        let most = if self.device.is_cuda() { usize::MAX } else { 1 };
        for (name, table) in tables.into_iter().take(most) {
            let (cx, call) = (Context::new(&self.device).with_table(table), self.call.clone());
            self.tuned.config(name, move |how| match how {
                How::Launch(_) => call(&cx),
                How::Compile(..) | How::Inspect(..) => Ok(()),
            });
        }
        self
    }

    fn contenders(self) -> Vec<Contender<'a>> {
        if !self.takes_part {
            return Vec::new();
        }
        let (cx, call) = (Context::new(&self.device), self.call);
        let mut chosen = Contender { name: record::DEFAULT, configs: Vec::new() };
        chosen.config("as the library chooses".to_string(), move |how| match how {
            How::Launch(_) => call(&cx),
            How::Compile(..) | How::Inspect(..) => Ok(()),
        });
        if self.tuned.configs.is_empty() { vec![chosen] } else { vec![chosen, self.tuned] }
    }
}

/// An input as a tensor.
pub fn tensor<T: Element, const R: usize>(input: &Input<T>, shape: [usize; R]) -> Result<TensorView<'_, T, R>, Error> {
    TensorView::new(input.view()?, shape)
}

/// The address of a tensor, for a peer.
pub fn address<T: DType, const R: usize>(tensor: &Tensor<T, R>) -> Argument {
    Argument::Address(tensor.buffer().raw().address.get())
}

/// A size, for a peer.
pub fn size(value: usize) -> Argument {
    Argument::I32(value as i32)
}

/// What must be in some rows of outputs, from the same rows of inputs.
pub fn expected<T: Element, const I: usize, const O: usize>(
    matrix: Matrix,
    inputs: [&Input<T>; I],
    row_of: impl Fn(usize, [&[f64]; I]) -> [Vec<f64>; O],
) -> Result<[Vec<Segment>; O], Failure> {
    let columns = matrix.columns;
    let mut all = [const { Vec::new() }; O];
    for row in sampled(matrix.rows) {
        let mut data = Vec::new();
        for input in inputs {
            data.push(input.read(row * columns, columns)?);
        }
        let parts = std::array::from_fn(|at| data[at].as_slice());
        for (segments, values) in all.iter_mut().zip(row_of(row, parts)) {
            let at = if values.len() == columns { row * columns } else { row };
            segments.push(Segment { at, values });
        }
    }
    Ok(all)
}

/// Triton's kernels of a work.
pub fn triton<'a>(
    stage: &Stage,
    (work, dtype): (&str, &str),
    arguments: Vec<Argument>,
    grid: impl Fn(&Entry) -> Option<[usize; 3]>,
) -> Result<Vec<Contender<'a>>, Failure> {
    let contender = stage.triton((work, dtype, Variant::Aligned), arguments, grid)?;
    Ok(if contender.configs.is_empty() { Vec::new() } else { vec![contender] })
}

/// Triton's kernels that take a row a program; those that keep it in registers need a block as wide as it.
pub fn triton_rows<'a>(
    stage: &Stage,
    work: &str,
    matrix: Matrix,
    arguments: Vec<Argument>,
    whole: bool,
) -> Result<Vec<Contender<'a>>, Failure> {
    let fits = |e: &Entry| !whole || e.get("BLOCK").is_some_and(|block| block >= matrix.columns);
    triton(stage, (work, bf16::NAME), arguments, |e| fits(e).then_some([matrix.rows, 1, 1]))
}

/// Triton's kernels that take a piece of all elements a program.
pub fn triton_flat<'a>(
    stage: &Stage,
    work: &str,
    len: usize,
    arguments: Vec<Argument>,
) -> Result<Vec<Contender<'a>>, Failure> {
    triton(stage, (work, bf16::NAME), arguments, |e| {
        let whole = e.get("COLUMNS").is_some_and(|columns| columns > 0);
        if whole { None } else { Some([len.div_ceil(e.get("BLOCK")?), 1, 1]) }
    })
}
