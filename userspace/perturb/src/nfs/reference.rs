//! Published curves, drawn as ours are: throughput, a varied setting, response time.
//!
//! Model: a CSV file whose first line is `#` and the citation, and whose second names the columns:
//! `throughput_op_s`, `response_ms`, and at most one more with a number, by which the points are parted
//! into curves. Other columns, and rows without the numbers, are passed over.

use std::{collections::BTreeMap, path::Path};

use perturb_present::chart::{Axis, Chart, Series};
use perturb_profile::Knob;

use super::{InvalidInput, effect, measure::Added};

/// Curves of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reference {
    citation: String,
    curves: Vec<Curve>,
}

#[derive(Clone, Debug, PartialEq)]
struct Curve {
    name: String,
    added: Added,
    /// Throughput and response time, by throughput.
    points: Vec<(f64, f64)>,
}

/// Reads a table.
pub(super) fn read(path: &Path) -> Result<Reference, InvalidInput> {
    let text = std::fs::read_to_string(path).map_err(|reason| InvalidInput::Unreadable {
        path: path.to_owned(),
        reason,
    })?;
    parse(&text).ok_or_else(|| InvalidInput::Reference(path.to_owned()))
}

fn parse(text: &str) -> Option<Reference> {
    let mut citation = String::new();
    let mut lines = text.lines().filter(|line| match line.strip_prefix('#') {
        Some(comment) => {
            if citation.is_empty() {
                citation = comment.trim().to_owned();
            }
            false
        }
        None => !line.trim().is_empty(),
    });
    let header: Vec<&str> = lines.next()?.split(',').map(str::trim).collect();
    let column = |name: &str| header.iter().position(|column| *column == name);
    let (throughput, response) = (column("throughput_op_s")?, column("response_ms")?);
    let rows: Vec<Vec<&str>> = lines
        .map(|line| line.split(',').map(str::trim).collect())
        .collect();
    let number = |row: &[&str], column: usize| row.get(column)?.parse::<f64>().ok();
    let setting = (0..header.len()).find(|column| {
        *column != throughput && *column != response && rows.iter().any(|row| number(row, *column).is_some())
    });
    // By value, not by spelling; every number of a table has an order.
    let mut curves: BTreeMap<u64, Curve> = BTreeMap::new();
    for row in &rows {
        let (Some(x), Some(y)) = (number(row, throughput), number(row, response)) else {
            continue;
        };
        let (key, name, added) = match setting {
            None => (0, "published".to_owned(), None),
            Some(column) => match number(row, column) {
                // Positive floats are ordered as their bits are.
                Some(value) => (
                    value.max(0.0).to_bits(),
                    named(header[column], row[column]),
                    added(header[column], value),
                ),
                None => continue,
            },
        };
        let curve = curves.entry(key).or_insert(Curve {
            name,
            added,
            points: Vec::new(),
        });
        curve.points.push((x, y));
    }
    let mut curves: Vec<Curve> = curves.into_values().collect();
    for curve in &mut curves {
        curve.points.sort_by(|left, right| left.0.total_cmp(&right.0));
    }
    (!curves.is_empty()).then_some(Reference { citation, curves })
}

/// `latency_us` of 500 is `latency 500 us`.
fn named(column: &str, value: &str) -> String {
    match column.split_once('_') {
        Some((name, unit)) => {
            let unit = match unit {
                "mb_s" => "MB/s",
                "op_s" => "op/s",
                other => other,
            };
            format!("{name} {value} {unit}")
        }
        None => format!("{column} {value}"),
    }
}

/// What a column says was varied.
fn added(column: &str, value: f64) -> Added {
    let (name, unit) = column.split_once('_')?;
    let knob = Knob::ALL.into_iter().find(|knob| knob.key() == name)?;
    match (knob, unit) {
        (Knob::Bandwidth, "mb_s") => Some((knob, 1.0 / value)),
        (Knob::Overhead | Knob::Gap | Knob::Latency, "us") => Some((knob, value)),
        _ => None,
    }
}

impl Reference {
    /// Where it was published.
    pub(super) fn citation(&self) -> &str {
        &self.citation
    }

    /// Base and peak of each curve.
    pub(super) fn points(&self) -> Vec<effect::Point> {
        let ends = |curve: &Curve| {
            let (first, last) = (curve.points.first()?, curve.points.last()?);
            Some(effect::Point {
                added: curve.added,
                base_ms: first.1,
                peak_op_s: last.0,
            })
        };
        self.curves.iter().filter_map(ends).collect()
    }

    /// The curves, drawn.
    pub(super) fn chart(&self) -> Chart {
        let chart = Chart::new(
            "Published: NFS response time over throughput",
            Axis::new("delivered throughput", "op/s"),
            Axis::new("mean response time", "ms"),
        )
        .caption(self.citation.clone());
        let curves = self
            .curves
            .iter()
            .map(|curve| Series::new(curve.name.clone(), curve.points.iter().copied()));
        curves.fold(chart, Chart::series)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE_B_14: &str = perturb_models::published::tables::MARTIN_B_14.text;

    #[test]
    fn curves_are_parted_by_the_setting() {
        let reference = parse(TABLE_B_14).unwrap();
        assert_eq!(reference.citation, "Martin 1999, Table B.14");
        let names: Vec<&str> = reference.curves.iter().map(|curve| curve.name.as_str()).collect();
        assert_eq!(names.len(), 9);
        assert_eq!((names[0], names[8]), ("bandwidth 1.2 MB/s", "bandwidth 26 MB/s"));
        assert_eq!(reference.curves[8].points[0], (198.0, 7.1));
        assert_eq!(reference.points()[8].added, Some((Knob::Bandwidth, 1.0 / 26.0)));
        assert!(reference.chart().to_svg().unwrap().contains("bandwidth 4.5 MB/s"));
    }

    #[test]
    fn a_table_of_something_else_is_refused() {
        assert_eq!(parse("# x\na,b\n1,2\n"), None);
        assert_eq!(parse("throughput_op_s,response_ms\n"), None);
        let single = parse("throughput_op_s,response_ms\n298,3.4\n").unwrap();
        assert_eq!(single.curves[0].name, "published");
        assert_eq!(single.curves[0].points, [(298.0, 3.4)]);
    }
}
