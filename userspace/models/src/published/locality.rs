//! Salisbury, Chen and Melhem 1999, Tables 1 and 2: L of partitionings.

use super::Comparison;
use super::table::{Row, Table};
use crate::locality::{Method, Partitioning, parse};

const TRUNCATED: &str = "printed truncated, not rounded";

pub(super) fn comparisons() -> Vec<Comparison> {
    let simple = Table::new(include_str!("../../tests/data/tables/locality-table1-simple.csv"));
    let loops = Table::new(include_str!(
        "../../tests/data/tables/locality-table2-disjoint-loops.csv"
    ));
    let simple = simple
        .rows()
        .filter_map(|row| compare(&row, "Salisbury, Chen and Melhem 1999, Table 1"));
    let loops = loops
        .rows()
        .filter_map(|row| compare(&row, "Salisbury, Chen and Melhem 1999, Table 2"));
    simple.chain(loops).collect()
}

fn compare(row: &Row<'_>, source: &'static str) -> Option<Comparison> {
    let (requests, method) = (row.text("requests"), row.text("method"));
    let partitions = row.text("partitions").replace('|', " | ");
    let text = if method == "given" { &partitions } else { requests };
    let document = parse(text).ok()?;
    let found = Partitioning::by(method.parse::<Method>().ok()?, &document).ok()?;
    let (paper, ours) = (row.number("locality_l")?, found.locality().locality);
    let digit = row.last_digit("locality_l");
    // 6.2854 is printed as 6.28.
    let truncated = ours - paper > digit / 2.0 && ours - paper < digit;
    Some(Comparison {
        model: "locality",
        source,
        // A stroke would end a cell of a Markdown table.
        case: format!(
            "{}, {method}",
            if method == "given" {
                text.replace('|', "/")
            } else {
                requests.into()
            }
        ),
        unit: "",
        paper,
        ours,
        tolerance: if truncated { digit } else { digit / 2.0 },
        reading: truncated.then_some(TRUNCATED),
        deviation: None,
    })
}
