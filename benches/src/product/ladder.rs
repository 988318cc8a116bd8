//! The ladder: what each step from a naive kernel to the fastest changes in the code, and what it gains.

use std::fmt::Write as _;
use std::path::Path;

use plotters::prelude::*;
use tilewright::launch::CompiledKernel;

use super::outcome::{self, Outcome, Row};
use crate::Failure;

/// The file with the code of the rungs.
pub const CODE: &str = "ladder_code.csv";
const HEADER: &str = "rung,copies,products,warps,shared bytes,registers,spilled bytes";
/// The size by which gains are counted and which is drawn; the other columns of rates are the other sizes.
const MAIN: &str = "8192x8192x8192";

/// What the compiler made of a rung.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Code {
    /// The rung: its number and its idea.
    pub rung: String,
    /// The instruction that brings the factors from global memory.
    pub copies: String,
    /// The instruction that multiplies.
    pub products: String,
    /// Warps per program, those that fetch included.
    pub warps: u32,
    /// Bytes of shared memory per program.
    pub shared: u32,
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of registers per thread that lie in memory.
    pub spilled: u32,
}

/// The number before some words of a text.
fn number_before(text: &str, words: &str) -> Option<u32> {
    let before = &text[..text.find(words)?];
    before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The instruction of the products: the shape that follows `name` in PTX.
fn shaped(ptx: &str, name: &str) -> Option<String> {
    let rest = &ptx[ptx.find(name)?..];
    let shape = rest.split('.').find(|part| part.starts_with('m') && part.contains('n') && part.contains('k'))?;
    Some(format!("{} {shape}", name.trim_end_matches("_async").trim_end_matches(".mma")))
}

impl Code {
    /// Of a kernel that a device has loaded.
    ///
    /// # Errors
    /// If the kernel's report does not say what it costs.
    pub fn of(rung: &str, kernel: &CompiledKernel) -> Result<Code, Failure> {
        let (ptx, report) = (kernel.ptx(), kernel.report());
        let number = |words: &str| number_before(report, words).ok_or_else(|| format!("no `{words}` in {report}"));
        let products = shaped(ptx, "wgmma.mma_async").or_else(|| shaped(ptx, "mma.sync"));
        let copies = ["cp.async.bulk.tensor", "cp.async.c", "ld.global"].into_iter().find(|name| ptx.contains(name));
        let copies = match copies {
            Some("cp.async.bulk.tensor") => "tensor copies",
            Some("cp.async.c") => "`cp.async`",
            Some(_) | None => "loads",
        };
        Ok(Code {
            rung: rung.to_string(),
            copies: copies.to_string(),
            products: products.map_or_else(|| "`fma`".to_string(), |name| format!("`{name}`")),
            warps: number(" warp")?,
            shared: number(" bytes of shared memory")?,
            registers: number(" registers per thread")?,
            spilled: number_before(report, " bytes of them spilled").unwrap_or(0),
        })
    }

    /// Those of a file with the lines of [`csv`].
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn all(file: &Path) -> Result<Vec<Code>, String> {
        Ok(read(file)?.lines().skip(1).filter_map(Code::parse).collect())
    }

    /// Of a line of [`csv`].
    pub fn parse(line: &str) -> Option<Code> {
        let mut fields = line.split(',');
        let mut text = || fields.next().map(str::to_string);
        let (rung, copies, products) = (text()?, text()?, text()?);
        let mut number = || fields.next()?.parse().ok();
        Some(Code {
            rung,
            copies,
            products,
            warps: number()?,
            shared: number()?,
            registers: number()?,
            spilled: number()?,
        })
    }
}

/// The code of all rungs as CSV.
pub fn csv(all: &[Code]) -> String {
    let mut out = format!("{HEADER}\n");
    for Code { rung, copies, products, warps, shared, registers, spilled } in all {
        let _ = writeln!(out, "{rung},{copies},{products},{warps},{shared},{registers},{spilled}");
    }
    out
}

/// The rate of somebody in a row.
type Rate<'f> = &'f dyn Fn(&Row<'_>) -> Option<f64>;

/// Whether somebody is a rung: its name begins with a number.
fn is_rung(o: &Outcome) -> bool {
    o.contender.starts_with(|c: char| c.is_ascii_digit())
}

/// The row of a size.
fn of<'r, 'o>(rows: &'r [Row<'o>], shape: &str) -> Option<&'r Row<'o>> {
    rows.iter().find(|row| row.all.iter().any(|o| o.shape == shape))
}

/// A number of hundredths, or a dash.
pub(crate) fn hundredths(value: Option<f64>) -> String {
    value.filter(|value| !value.is_nan()).map_or("–".to_string(), |value| format!("{value:.2}"))
}

/// How a size is called in the table: `8192³`, or `8192² × 512`.
fn title(shape: &str) -> String {
    match shape.split('x').collect::<Vec<_>>()[..] {
        [m, n, k] if m == n && n == k => format!("{m}³"),
        [m, n, k] if m == n => format!("{m}² × {k}"),
        _ => shape.replace('x', " × "),
    }
}

/// Everybody's rate at every size with each rung's gain over the one before it, its part of cuBLAS at the main size,
/// and its code.
pub fn table(rows: &[Row<'_>], code: &[Code]) -> Option<String> {
    let main = of(rows, MAIN)?;
    let mut out = String::from("| rung |");
    for shape in rows.iter().filter_map(|row| row.all.first()).map(|o| o.shape.as_str()) {
        let _ = write!(out, " {} | gain |", title(shape));
    }
    out += " of cuBLAS | copies | products | warps | shared memory | registers |\n|---|";
    out += &"--:|--:|".repeat(rows.len());
    out += "--:|---|---|--:|--:|--:|\n";
    let mut last: Option<&str> = None;
    for name in main.all.iter().filter(|o| is_rung(o)).map(|o| o.contender.as_str()) {
        let _ = write!(out, "| {name} |");
        for row in rows {
            let here = row.named(name);
            let before = last.and_then(|last| row.named(last));
            let gain = here.zip(before).map(|(here, before)| before.ms / here.ms);
            let digits = |rate: f64| if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") };
            let rate = here.map_or("–".to_string(), |here| digits(here.tflops));
            let _ = write!(out, " {rate} | {} |", hundredths(gain));
        }
        let _ = write!(out, " {} |", hundredths(main.named(name).map(|o| o.to_cublas)));
        match code.iter().find(|c| c.rung == name) {
            Some(Code { copies, products, warps, shared, registers, .. }) => {
                let shared = f64::from(*shared) / 1024.0;
                let _ = writeln!(out, " {copies} | {products} | {warps} | {shared:.0} KiB | {registers} |");
            }
            None => out += " – | – | – | – | – |\n",
        }
        last = Some(name);
    }
    let others: [(&str, Rate<'_>); 3] = [
        ("Triton 3.6, its best form and configuration", &|row| Some(row.best("triton")?.tflops)),
        ("cuBLAS", &|row| Some(row.named("cublas")?.tflops)),
        ("cuBLASLt, the best of its proposals", &|row| Some(row.named("cublaslt")?.tflops)),
    ];
    for (name, rate) in others.into_iter().filter(|(_, rate)| rate(main).is_some()) {
        let rates = rows.iter().map(|row| rate(row).map_or(" – | |".to_string(), |rate| format!(" {rate:.0} | |")));
        let _ = writeln!(out, "| {name} |{} | | | | | |", rates.collect::<String>());
    }
    Some(out)
}

/// Draws the rates of rungs, with a line for somebody else's, on a scale that has room for the highest rate of all.
pub(crate) fn draw(
    caption: &str,
    rungs: &[f64],
    other: Option<(&str, f64)>,
    highest: f64,
    file: &Path,
) -> Result<(), Failure> {
    let root = SVGBackend::new(file, (760, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut axes = ChartBuilder::on(&root)
        .caption(caption, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d((1..rungs.len()).into_segmented(), 0.0..highest * 1.08)?;
    axes.configure_mesh().disable_x_mesh().x_desc("rung").y_desc("TFLOP/s").light_line_style(WHITE).draw()?;
    let colour = RGBColor(0xC2, 0x41, 0x0C);
    let bars = rungs.iter().enumerate().map(|(at, &rate)| {
        let (left, right) = (SegmentValue::Exact(at + 1), SegmentValue::Exact(at + 2));
        let mut bar = Rectangle::new([(left, 0.0), (right, rate)], colour.filled());
        bar.set_margin(0, 0, 6, 6);
        bar
    });
    axes.draw_series(bars)?;
    if let Some((name, rate)) = other {
        let ends = [SegmentValue::Exact(1), SegmentValue::Exact(rungs.len() + 1)].map(|at| (at, rate));
        let grey = RGBColor(0x37, 0x41, 0x51);
        axes.draw_series(LineSeries::new(ends, grey.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], grey.stroke_width(2)));
        let legend = SeriesLabelPosition::UpperLeft;
        axes.configure_series_labels().position(legend).background_style(WHITE).border_style(BLACK).draw()?;
    }
    root.present()?;
    Ok(())
}

/// Makes `ladder.md` and its picture from `ladder.csv` and [`CODE`], and returns the table.
///
/// # Errors
/// If there are no results, or a file cannot be written.
pub fn page(folder: &Path) -> Result<String, Failure> {
    let (notes, outcomes) = outcome::parse(&read(&folder.join("ladder.csv"))?);
    let code = Code::all(&folder.join(CODE))?;
    let rows = outcome::rows(&outcomes);
    let (Some(table), Some(main)) = (table(&rows, &code), of(&rows, MAIN)) else {
        return Err(format!("ladder.csv has no product of {MAIN}").into());
    };
    let rungs: Vec<f64> = main.all.iter().filter(|o| is_rung(o)).map(|o| o.tflops).collect();
    let cublas = main.named("cublas").map(|o| ("cuBLAS", o.tflops));
    let highest = main.all.iter().map(|o| o.tflops).fold(0.0, f64::max);
    draw("f16, M = N = K = 8192", &rungs, cublas, highest, &folder.join("ladder.svg"))?;
    let head = "# The ladder of matrix products\n\n\
         TFLOP/s of f16 products, medians of interleaved rounds. The gain is over the rung before; the part of \
         cuBLAS is that of the largest product. What each rung is says the documentation, in \
         `tilewright::guide::matmul`.";
    save(&folder.join("ladder.md"), head, &notes, &table)?;
    Ok(table)
}

/// The text of a file.
pub(crate) fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// Writes the page of a ladder, with the picture of its name.
pub(crate) fn save(page: &Path, head: &str, notes: &[String], table: &str) -> Result<(), Failure> {
    let mut text = format!("{head}\n\n");
    for note in notes {
        let _ = writeln!(text, "- {note}");
    }
    let picture = page.with_extension("svg");
    let picture = picture.file_name().unwrap_or_default().to_string_lossy();
    let _ = write!(text, "\n{table}\n![{picture}]({picture})\n");
    std::fs::write(page, text)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_a_rung_survives_a_file() {
        let [rung, copies, products] = ["1 plain", "loads", "`wgmma m64n256k16`"].map(str::to_string);
        let code = Code { rung, copies, products, warps: 8, shared: 1024, registers: 90, spilled: 0 };
        let all = csv(std::slice::from_ref(&code));
        assert_eq!(all.lines().skip(1).filter_map(Code::parse).collect::<Vec<_>>(), [code]);
    }

    #[test]
    fn reports_and_ptx_are_read() {
        let report =
            "kernel k for sm_90a: 8 warps, 49152 bytes of shared memory, 1 barrier\n  168 registers per thread";
        assert_eq!(number_before(report, " bytes of shared memory"), Some(49152));
        assert_eq!(number_before(report, " registers per thread"), Some(168));
        assert_eq!(number_before(report, " bytes of them spilled"), None);
        let ptx = "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {%f1}";
        assert_eq!(shaped(ptx, "wgmma.mma_async").as_deref(), Some("wgmma m64n256k16"));
        assert_eq!(shaped(ptx, "mma.sync"), None);
    }

    #[test]
    fn a_rung_is_compared_with_the_one_before_and_with_cublas() {
        let text = "# note\nheader\n\
            large,8192x8192x8192,f16,cublas,its own,1.0,800,1,NaN,NaN,1.0,NaN,1,none,0\n\
            large,8192x8192x8192,f16,1 plain,BM=1,4.0,200,1,NaN,NaN,0.25,NaN,1,none,0\n\
            large,8192x8192x8192,f16,2 better,BM=1,2.0,400,1,NaN,NaN,0.5,NaN,1,none,0\n\
            large,8192x8192x512,f16,1 plain,BM=1,4.0,100,1,NaN,NaN,0.25,NaN,1,none,0\n\
            large,8192x8192x512,f16,2 better,BM=1,5.0,80,1,NaN,NaN,0.5,NaN,1,none,0\n";
        let (_, outcomes) = outcome::parse(text);
        let table = table(&outcome::rows(&outcomes), &[]).expect("there is the largest product");
        assert!(table.starts_with("| rung | 8192³ | gain | 8192² × 512 | gain | of cuBLAS |"), "{table}");
        assert!(table.contains("| 1 plain | 200 | – | 100 | – | 0.25 |"), "{table}");
        assert!(table.contains("| 2 better | 400 | 2.00 | 80 | 0.80 | 0.50 |"), "{table}");
        assert!(table.contains("| cuBLAS | 800 |"), "{table}");
    }
}
