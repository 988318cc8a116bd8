//! The picture of all rows that were measured: a dot for each, at our rate over the fastest peer's, a line for each work.

use super::{Row, rows};
use crate::record::Record;
use crate::{Failure, Outcome, attention_page, report};
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

/// The rows of a work.
#[derive(Clone, Debug)]
pub struct Group {
    /// The work, with the bench where others have it too.
    pub work: String,
    /// Ratios, and whom they are to.
    pub dots: Vec<(f64, Peer)>,
}

/// Whom a ratio is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A kernel in Triton.
    Triton,
    /// A vendor's library: cuBLAS, cuDNN.
    Vendor,
    /// A function of PyTorch.
    PyTorch,
}

impl Peer {
    fn of(contender: &str) -> Option<Peer> {
        match contender {
            name if name.starts_with("triton") => Some(Peer::Triton),
            "cudnn" | "flash" => Some(Peer::Vendor),
            name if name.starts_with("cublas") => Some(Peer::Vendor),
            name if name.starts_with("pytorch") => Some(Peer::PyTorch),
            _ => None,
        }
    }

    fn colour(self) -> RGBColor {
        match self {
            Peer::Triton => RGBColor(0x1D, 0x4E, 0xD8),
            Peer::Vendor => RGBColor(0x15, 0x80, 0x3D),
            Peer::PyTorch => RGBColor(0xC2, 0x41, 0x0C),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Peer::Triton => "to Triton",
            Peer::Vendor => "to cuBLAS or cuDNN",
            Peer::PyTorch => "to PyTorch",
        }
    }
}

/// Adds a dot to the group of its work.
fn add(groups: &mut Vec<Group>, work: String, dot: (f64, Peer)) {
    match groups.iter_mut().find(|group| group.work == work) {
        Some(group) => group.dots.push(dot),
        None => groups.push(Group { work, dots: vec![dot] }),
    }
}

/// Ratios to each kind of peer, of outcomes of one bench.
fn of_outcomes(groups: &mut Vec<Group>, outcomes: &[Outcome]) {
    let mut fastest: BTreeMap<[&str; 3], Vec<&Outcome>> = BTreeMap::new();
    for outcome in outcomes {
        fastest.entry([&outcome.work, &outcome.shape, &outcome.dtype]).or_default().push(outcome);
    }
    for ([work, ..], all) in fastest {
        let ours = all.iter().filter(|o| o.contender == "tilewright").map(|o| o.ms).reduce(f64::min);
        let Some(ours) = ours else { continue };
        for peer in [Peer::Triton, Peer::Vendor, Peer::PyTorch] {
            let theirs = all.iter().filter(|o| Peer::of(&o.contender) == Some(peer)).map(|o| o.ms);
            if let Some(theirs) = theirs.reduce(f64::min) {
                add(groups, work.replace('_', " "), (theirs / ours, peer));
            }
        }
    }
}

/// Ratios of products, to Triton's best form and to cuBLAS.
fn of_products(groups: &mut Vec<Group>, text: &str) {
    let lines: Vec<Vec<&str>> = text.lines().filter(|l| !l.starts_with('#')).map(|l| l.split(',').collect()).collect();
    let Some(header) = lines.first() else { return };
    let column = |name: &str| header.iter().position(|title| *title == name);
    let (Some(group), Some(contender)) = (column("group"), column("contender")) else { return };
    let mut best: BTreeMap<String, (String, [f64; 2])> = BTreeMap::new();
    for line in lines.iter().skip(1).filter(|line| line.get(contender).is_some_and(|c| c.starts_with("tilewright"))) {
        let ratio = |name: &str| column(name).and_then(|at| line.get(at)?.parse().ok()).unwrap_or(f64::NAN);
        let row = line[..contender].join(",");
        let ratios = [ratio("to Triton"), ratio("to cuBLAS")];
        let entry = best.entry(row).or_insert_with(|| (format!("products, {}", line[group]), [f64::NAN; 2]));
        entry.1 = [entry.1[0].max(ratios[0]), entry.1[1].max(ratios[1])];
    }
    for (work, [triton, vendor]) in best.into_values() {
        for (ratio, peer) in [(triton, Peer::Triton), (vendor, Peer::Vendor)] {
            if ratio.is_finite() {
                add(groups, work.clone(), (ratio, peer));
            }
        }
    }
}

/// The rows of all results in a folder, and of these records.
pub fn all(folder: &Path, records: &[Record]) -> Vec<Group> {
    let mut groups = Vec::new();
    for names in [&["bandwidth.csv", "pytorch.csv"][..], &[attention_page::RESULTS]] {
        let texts = names.iter().filter_map(|name| std::fs::read_to_string(folder.join(name)).ok());
        let outcomes: Vec<Outcome> = texts.flat_map(|text| report::parse(&text).1).collect();
        of_outcomes(&mut groups, &outcomes);
    }
    if let Ok(text) = std::fs::read_to_string(folder.join("matmul.csv")) {
        of_products(&mut groups, &text);
    }
    for row in rows(records) {
        let Row { ours: Some(ours), peer: Some(peer), .. } = row else { continue };
        if let Some(kind) = Peer::of(&peer.contender) {
            add(&mut groups, format!("library: {}", ours.work.replace('_', " ")), (peer.ms / ours.ms, kind));
        }
    }
    groups
}

/// Pixels of a line, and of what is around all of them.
const LINE: u32 = 18;
const AROUND: u32 = 130;

/// Draws the groups, one below the other.
///
/// # Errors
/// If the file cannot be written.
pub fn draw(groups: &[Group], path: &Path) -> Result<(), Failure> {
    let height = AROUND + LINE * groups.len() as u32;
    let root = SVGBackend::new(path, (900, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let most = groups.iter().flat_map(|g| &g.dots).map(|(ratio, _)| *ratio).fold(2.0, f64::max).min(32.0);
    let least = groups.iter().flat_map(|g| &g.dots).map(|(ratio, _)| *ratio).fold(0.5, f64::min).max(1.0 / 32.0);
    let (low, high) = (least * 0.95, most * 1.05);
    let mut axes = ChartBuilder::on(&root)
        .caption("Our rate over the fastest peer's, all rows that were measured", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(210)
        .build_cartesian_2d((low..high).log_scale().base(2.0), 0.0..groups.len() as f64)?;
    axes.configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_desc("ratio: right of 1 we are faster")
        .x_label_formatter(&|x| format!("{x}"))
        .light_line_style(WHITE)
        .draw()?;
    axes.draw_series(LineSeries::new([(1.0, 0.0), (1.0, groups.len() as f64)], BLACK.stroke_width(1)))?;
    let place = |at: usize| groups.len() as f64 - at as f64 - 0.5;
    for (at, group) in groups.iter().enumerate() {
        // Names are right of nothing: they end where the axis begins.
        let label = axes.backend_coord(&(low, place(at)));
        let style = ("sans-serif", 13).into_font().into_text_style(&root);
        let style = style.pos(plotters::style::text_anchor::Pos::new(
            plotters::style::text_anchor::HPos::Right,
            plotters::style::text_anchor::VPos::Center,
        ));
        root.draw(&Text::new(group.work.clone(), (label.0 - 8, label.1), style))?;
    }
    for peer in [Peer::Triton, Peer::Vendor, Peer::PyTorch] {
        let dots = groups.iter().enumerate().flat_map(|(at, group)| {
            let own = group.dots.iter().filter(move |(_, kind)| *kind == peer);
            own.map(move |(ratio, _)| (ratio.clamp(low, high), place(at)))
        });
        let colour = peer.colour();
        axes.draw_series(dots.map(|dot| Circle::new(dot, 3, colour.mix(0.6).filled())))?
            .label(peer.name())
            .legend(move |(x, y)| Circle::new((x + 8, y), 4, colour.filled()));
    }
    axes.configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_kept_results_is_in_the_picture() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
        let groups = all(&folder, &[]);
        let text = std::fs::read_to_string(folder.join("bandwidth.csv")).unwrap();
        let (_, outcomes) = report::parse(&text);
        let ours = outcomes.iter().filter(|o| o.contender == "tilewright").count();
        let dots = |peer: Peer| groups.iter().flat_map(|g| &g.dots).filter(|(_, kind)| *kind == peer).count();
        assert!(dots(Peer::Triton) >= ours, "{} of {ours}", dots(Peer::Triton));
        let names = ["softmax", "attention", "attention backward", "products, large"];
        for name in names {
            assert!(groups.iter().any(|group| group.work == name), "{name}");
        }
    }
}
