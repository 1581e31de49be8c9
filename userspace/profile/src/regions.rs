//! Tables of what lies between groups.
//!
//! | header | a row |
//! |---|---|
//! | `from,to,latency [ms],bandwidth,loss` | what lies between two groups, one way |
//! | a corner, then groups | a group, then the latencies to those, in ms unless the corner or the cell has a unit |
//!
//! An empty cell says nothing, a line that begins with `#` is a comment. A cell is read as the key of a server that has its
//! column's name, and its mistakes are reported so, all at once.

use std::collections::HashMap;

use perturb_quantity::{Duration, Probability, Rate, closest};

use crate::diagnostic::{Diagnostics, Problem};
use crate::findings::{Findings, KeyPath};
use crate::model::{Name, Server};
use crate::read::At;
use crate::read::server::link;
use crate::recording::heading;
use crate::yaml::{Entry, Kind, Node, Place};

/// The columns of a table of pairs; the first three must be there.
const COLUMNS: [&str; 7] = ["from", "to", "latency", "bandwidth", "loss", "jitter", "buffer"];
const EXAMPLE: &str = "from,to,latency [ms],bandwidth [Mbit/s],loss [%]";

/// What a table says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Regions {
    /// All groups, in the order of the table.
    names: Vec<Name>,
    between: HashMap<(Name, Name), Server>,
}

impl Regions {
    pub(crate) fn names(&self) -> &[Name] {
        &self.names
    }

    /// What lies between two groups, one way.
    pub(crate) fn between(&self, from: &Name, to: &Name) -> Option<&Server> {
        self.between.get(&(from.clone(), to.clone()))
    }

    /// The same with half of each latency.
    pub(crate) fn halved(mut self) -> Self {
        for server in self.between.values_mut() {
            server.latency = Duration::from_nanos(server.latency.nanos() / 2);
        }
        self
    }
}

/// A cell and its place.
#[derive(Clone, Copy)]
struct Cell<'t> {
    text: &'t str,
    place: Place,
}

impl<'t> Cell<'t> {
    fn of(part: &'t str, line: &'t str, number: usize, whole: &str) -> Self {
        let trimmed = part.trim();
        let text = trimmed
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'))
            .unwrap_or(trimmed);
        let offset = |of: &str| (text.as_ptr() as usize).saturating_sub(of.as_ptr() as usize);
        let before = line.get(..offset(line)).unwrap_or("");
        let start = offset(whole);
        Self {
            text,
            place: Place {
                line: number,
                column: before.chars().count() + 1,
                start,
                end: start + text.len(),
            },
        }
    }

    fn name(self, findings: &mut Findings<'_>) -> Option<Name> {
        let name = Name::new(self.text);
        if name.is_none() {
            findings.report(self.place, KeyPath::ROOT, Problem::NotAName);
        }
        name
    }

    /// As the value of a server's key: a bare number has the `unit`.
    fn value(self, key: &str, unit: &str) -> Option<Entry> {
        if self.text.is_empty() {
            return None;
        }
        let is_bare = self.text.parse::<f64>().is_ok();
        let text = if is_bare {
            format!("{}{unit}", self.text)
        } else {
            self.text.to_owned()
        };
        Some(Entry {
            key: key.to_owned(),
            key_place: self.place,
            value: Node {
                place: self.place,
                kind: Kind::Scalar(text),
            },
        })
    }
}

/// Where each pair stands.
#[derive(Default)]
struct Table {
    regions: Regions,
    lines: HashMap<(Name, Name), usize>,
}

impl Table {
    fn name(&mut self, name: &Name) {
        if !self.regions.names.contains(name) {
            self.regions.names.push(name.clone());
        }
    }

    fn put(&mut self, pair: (Name, Name), values: Vec<Entry>, place: Place, findings: &mut Findings<'_>) {
        let title = format!("{} to {}", pair.0, pair.1);
        let path = KeyPath::ROOT.key(&title);
        if let Some(&first_line) = self.lines.get(&pair) {
            findings.report(place, path, Problem::DuplicateKey { first_line });
            return;
        }
        self.lines.insert(pair.clone(), place.line);
        if !values.iter().any(|entry| entry.key == "latency") {
            let (key, example) = ("latency", "40ms");
            findings.report(place, path, Problem::MissingKey { key, example });
            return;
        }
        let node = Node {
            place,
            kind: Kind::Map(values),
        };
        if let Some(server) = link(
            At {
                node: &node,
                path: &path,
            },
            findings,
        ) {
            self.regions.between.insert(pair, server);
        }
    }
}

/// Reads a table.
///
/// # Errors
/// All its mistakes.
pub(crate) fn read(text: &str) -> Result<Regions, Diagnostics> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut findings = Findings::new(text);
    let mut rows = (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|(number, line)| -> Vec<Cell<'_>> {
            line.split(',')
                .map(|part| Cell::of(part, line, number, text))
                .collect()
        });
    let table = match rows.next() {
        None => {
            let (why, remedy) = ("the table is empty", EXAMPLE_HEADER);
            findings.report(Place::default(), KeyPath::ROOT, Problem::Unfit { why, remedy });
            None
        }
        Some(header) if header.iter().any(|cell| ["from", "to"].contains(&cell.text)) => {
            pairs(&header, rows, &mut findings)
        }
        Some(header) => square(&header, rows, &mut findings),
    };
    findings.conclude(table.map(|table| table.regions))
}

const EXAMPLE_HEADER: &str = "begin with a header such as `from,to,latency [ms]`, or with the groups";

/// Whether a row has as many cells as the header.
fn fits(row: &[Cell<'_>], columns: usize, findings: &mut Findings<'_>) -> bool {
    if row.len() != columns {
        let place = row.first().map_or(Place::default(), |cell| cell.place);
        let why = "the row has not as many cells as the header";
        let remedy = "write one for each column; it may be empty";
        findings.report(place, KeyPath::ROOT, Problem::Unfit { why, remedy });
    }
    row.len() == columns
}

fn pairs<'t>(
    header: &[Cell<'t>],
    rows: impl Iterator<Item = Vec<Cell<'t>>>,
    findings: &mut Findings<'_>,
) -> Option<Table> {
    let mut columns: Vec<(&str, &str)> = Vec::new();
    for cell in header {
        let (name, unit) = heading(cell.text);
        let problem = if columns.iter().any(|&(other, _)| other == name) {
            Some(Problem::Repeated)
        } else if COLUMNS.contains(&name) {
            unit_fault(name, unit)
        } else {
            let meant = match name {
                "delay" => Some("latency"),
                "rate" | "throughput" => Some("bandwidth"),
                _ => closest(name, COLUMNS),
            };
            Some(Problem::UnknownKey {
                section: "a matrix",
                allowed: COLUMNS.to_vec(),
                suggestion: meant,
            })
        };
        if let Some(problem) = problem {
            findings.report(cell.place, KeyPath::ROOT, problem);
        }
        columns.push((name, unit));
    }
    for key in COLUMNS.into_iter().take(3) {
        if !columns.iter().any(|&(name, _)| name == key) {
            let place = header.first().map_or(Place::default(), |cell| cell.place);
            findings.report(
                place,
                KeyPath::ROOT,
                Problem::MissingKey {
                    key,
                    example: EXAMPLE,
                },
            );
        }
    }
    // Every row would be wrong as well.
    if findings.len() > 0 {
        return None;
    }
    let mut table = Table::default();
    for row in rows {
        if !fits(&row, columns.len(), findings) {
            continue;
        }
        let mut ends = [None, None];
        let mut values = Vec::new();
        for (&cell, &(column, unit)) in row.iter().zip(&columns) {
            match column {
                "from" => ends[0] = cell.name(findings),
                "to" => ends[1] = cell.name(findings),
                _ => values.extend(cell.value(column, unit)),
            }
        }
        if let ([Some(from), Some(to)], Some(first)) = (ends, row.first()) {
            table.name(&from);
            table.name(&to);
            table.put((from, to), values, first.place, findings);
        }
    }
    Some(table)
}

/// What is wrong with a column's unit.
fn unit_fault(column: &str, unit: &str) -> Option<Problem> {
    fn fault<Q: perturb_quantity::Quantity>(unit: &str) -> Option<Problem> {
        let error = format!("1{unit}").parse::<Q>().err()?;
        Some(Problem::Quantity {
            error: error.fault,
            what: Q::DIMENSION.what,
            units: Q::DIMENSION.offered,
            example: Q::DIMENSION.example,
        })
    }
    match column {
        _ if unit.is_empty() => None,
        "latency" | "jitter" => fault::<Duration>(unit),
        "bandwidth" => fault::<Rate>(unit),
        "loss" => fault::<Probability>(unit),
        // Of a size or a time.
        _ => None,
    }
}

fn square<'t>(
    header: &[Cell<'t>],
    rows: impl Iterator<Item = Vec<Cell<'t>>>,
    findings: &mut Findings<'_>,
) -> Option<Table> {
    let (corner, heads) = header.split_first()?;
    if heads.is_empty() {
        let (why, remedy) = ("the header has one column", EXAMPLE_HEADER);
        findings.report(corner.place, KeyPath::ROOT, Problem::Unfit { why, remedy });
        return None;
    }
    let unit = corner
        .text
        .rsplit_once(['[', '('])
        .map_or("ms", |(_, unit)| unit.trim_end_matches([']', ')']).trim());
    if let Some(problem) = unit_fault("latency", unit) {
        findings.report(corner.place, KeyPath::ROOT, problem);
    }
    let mut table = Table::default();
    let mut to: Vec<Option<Name>> = Vec::new();
    for cell in heads {
        let name = cell.name(findings);
        if let Some(name) = &name {
            if table.regions.names.contains(name) {
                findings.report(cell.place, KeyPath::ROOT, Problem::Repeated);
            }
            table.name(name);
        }
        to.push(name);
    }
    if findings.len() > 0 {
        return None;
    }
    for row in rows {
        if !fits(&row, header.len(), findings) {
            continue;
        }
        let Some((first, cells)) = row.split_first() else {
            continue;
        };
        let Some(from) = first.name(findings) else {
            continue;
        };
        table.name(&from);
        for (cell, to) in cells.iter().zip(&to) {
            if let (Some(value), Some(to)) = (cell.value("latency", unit), to) {
                table.put((from.clone(), to.clone()), vec![value], cell.place, findings);
            }
        }
    }
    Some(table)
}
