//! Published curves, drawn as ours are: throughput, a varied setting, response time.
//!
//! Model: a table of `perturb_models::published::tables`, or a file of the same form (a line of `#` and the citation, one
//! with the names of the columns, rows), with the columns `throughput_op_s`, `response_ms`, and at most one more with a
//! number, by which the points are parted into curves. Other columns, and rows without the numbers, are passed over.

use std::{collections::BTreeMap, io::ErrorKind};

use perturb_models::published::tables::{self, Embedded};
use perturb_present::chart::{Axis, Chart, Series};
use perturb_profile::Knob;

use super::{InvalidInput, effect, measure::Added};

/// Curves of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    citation: &'static str,
    curves: Vec<Curve>,
}

#[derive(Clone, Debug, PartialEq)]
struct Curve {
    name: String,
    added: Added,
    /// Throughput and response time, by throughput.
    points: Vec<(f64, f64)>,
}

/// The names of the embedded tables that have curves.
fn names() -> impl Iterator<Item = &'static str> {
    let with_curves = tables::ALL.iter().filter(|table| curves(**table).is_some());
    with_curves.map(|table| table.label())
}

/// A file's text lasts as long as an embedded one's: one is read in a process.
fn file(path: &str) -> Result<&'static str, InvalidInput> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.leak()),
        Err(reason) if reason.kind() == ErrorKind::NotFound && !path.contains(['/', ',']) => {
            Err(InvalidInput::NoTable {
                name: path.to_owned(),
                names: names().collect::<Vec<_>>().join(", "),
            })
        }
        Err(reason) => Err(InvalidInput::Unreadable {
            path: path.into(),
            reason,
        }),
    }
}

fn curves(embedded: Embedded) -> Option<Reference> {
    const RATE: &str = "throughput_op_s";
    const RESPONSE: &str = "response_ms";
    let table = embedded.table();
    let setting = table.columns().iter().copied().find(|column| {
        ![RATE, RESPONSE].contains(column) && table.rows().any(|row| row.number(column).is_some())
    });
    // By value, not by spelling; every number of a table has an order.
    let mut curves: BTreeMap<u64, Curve> = BTreeMap::new();
    for row in table.rows() {
        let (Some(x), Some(y)) = (row.number(RATE), row.number(RESPONSE)) else {
            continue;
        };
        let (key, name, added) = match setting {
            None => (0, "published".to_owned(), None),
            Some(column) => match row.number(column) {
                // Positive floats are ordered as their bits are.
                Some(value) => (
                    value.max(0.0).to_bits(),
                    named(column, row.text(column)),
                    added(column, value),
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
    let citation = embedded.citation();
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
        (_, "us") => Some((knob, value)),
        _ => None,
    }
}

impl Reference {
    /// Reads an embedded table by its name, or a file of the same form.
    pub fn read(table: &str) -> Result<Self, InvalidInput> {
        let found = match tables::find(table) {
            Some(embedded) => embedded,
            None => Embedded {
                name: "",
                text: file(table)?,
            },
        };
        curves(found).ok_or_else(|| InvalidInput::Reference(table.to_owned()))
    }

    /// Where it was published.
    pub(super) fn citation(&self) -> &str {
        self.citation
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
        .caption(self.citation);
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

    fn of(text: &'static str) -> Option<Reference> {
        curves(Embedded { name: "", text })
    }

    #[test]
    fn curves_are_parted_by_the_setting() {
        let reference = Reference::read("B.14").unwrap();
        assert_eq!(reference.citation, "Martin 1999, Table B.14");
        let names: Vec<&str> = reference.curves.iter().map(|curve| curve.name.as_str()).collect();
        assert_eq!(names.len(), 9);
        assert_eq!((names[0], names[8]), ("bandwidth 1.2 MB/s", "bandwidth 26 MB/s"));
        assert_eq!(reference.curves[8].points[0], (198.0, 7.1));
        assert_eq!(reference.points()[8].added, Some((Knob::Bandwidth, 1.0 / 26.0)));
        assert!(reference.chart().to_svg().unwrap().contains("bandwidth 4.5 MB/s"));
    }

    #[test]
    fn tables_with_curves_are_named() {
        assert_eq!(
            names().collect::<Vec<_>>(),
            ["A.1", "A.5", "B.10", "B.11", "B.12", "B.13", "B.14"]
        );
        assert!(
            Reference::read("B.15")
                .unwrap_err()
                .to_string()
                .contains("A.5, B.10")
        );
        assert!(
            Reference::read("3.1")
                .unwrap_err()
                .to_string()
                .contains("no curves")
        );
        assert!(matches!(
            Reference::read("./B.10"),
            Err(InvalidInput::Unreadable { .. })
        ));
        assert_eq!(Reference::read("A.5").unwrap().curves[0].name, "published");
    }

    #[test]
    fn a_table_of_something_else_is_refused() {
        assert_eq!(of("# x\na,b\n1,2\n"), None);
        assert_eq!(of("throughput_op_s,response_ms\n"), None);
        let single = of("throughput_op_s, response_ms\n298, 3.4\n").unwrap();
        assert_eq!(single.curves[0].name, "published");
        assert_eq!(single.curves[0].points, [(298.0, 3.4)]);
    }
}
