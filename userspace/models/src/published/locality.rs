//! Salisbury, Chen and Melhem 1999: L of partitionings (Tables 1, 2, 4, 6), thresholds of overlap (4.2, 4.3, Tables
//! 5 and 7), and the correlation of locality and cost (5.2).

use super::Comparison;
use super::tables::{self, Row, Table};
use crate::locality::cost::{Network, pearson};
use crate::locality::decision::Decision;
use crate::locality::experiment;
use crate::locality::thresholds::Thresholds;
use crate::locality::{Document, Method, Partitioning, parse};

const TRUNCATED: &str = "printed truncated, not rounded";

pub(super) fn comparisons() -> Vec<Comparison> {
    let simple = tables::LOCALITY_TABLE1.table();
    let loops = tables::LOCALITY_TABLE2.table();
    let overlapping = tables::LOCALITY_TABLE4.table();
    let equal = tables::LOCALITY_TABLE6.table();
    let mut all = Vec::new();
    for (table, source) in [
        (&simple, "Salisbury, Chen and Melhem 1999, Table 1"),
        (&loops, "Salisbury, Chen and Melhem 1999, Table 2"),
    ] {
        all.extend(table.rows().filter_map(|row| {
            let method: Method = row.text("method").parse().ok()?;
            of_partitioning(&row, source, method, "locality_l")
        }));
    }
    all.extend(
        overlapping
            .rows()
            .flat_map(|row| of_overlap(&row).unwrap_or_default()),
    );
    all.extend(thresholds().unwrap_or_default());
    let six = "Salisbury, Chen and Melhem 1999, Table 6";
    all.extend(equal.rows().filter_map(|row| {
        let mut found = of_partitioning(&row, six, Method::Natural, "locality_l")?;
        found.deviation = match row.text("requests") {
            "(1 2 3)^20 (4 5 6 6)^20" => {
                Some("6.28 is Table 2's (1 2 3 3)^20 (4 5 6 6)^20; this one has 140 requests, not 160")
            }
            "(1 2 3 4 5 6)^27" => Some("4.44 is the value of 160 requests; there are 162"),
            "(1 2 3 4 5 6 7 8 9)^18" => Some("1.96 is the value of 159 requests; there are 162"),
            _ => None,
        };
        Some(found)
    }));
    all.extend(correlations(&equal));
    all
}

/// A row of numbers without a rounding of their own.
fn row(
    source: &'static str,
    case: impl Into<String>,
    (paper, tolerance): (f64, f64),
    ours: f64,
    reading: Option<&'static str>,
) -> Comparison {
    Comparison {
        model: "locality",
        source,
        case: case.into(),
        unit: "",
        paper,
        ours,
        tolerance,
        reading,
        deviation: None,
    }
}

/// A printed L, in `column`, of the row's requests under a method.
fn of_partitioning(row: &Row<'_>, source: &'static str, method: Method, column: &str) -> Option<Comparison> {
    let requests = row.text("requests");
    let marked = row.text("partitions").replace('|', " | ");
    let text = if method == Method::Given {
        &marked
    } else {
        requests
    };
    let found = Partitioning::by(method, &parse(text).ok()?).ok()?;
    let (paper, ours) = (row.number(column)?, found.locality().locality);
    let digit = row.last_digit(column);
    // 6.2854 is printed as 6.28.
    let truncated = ours - paper > digit / 2.0 && ours - paper < digit;
    // A stroke would end a cell of a Markdown table.
    let name = match row.text("method") {
        "" => method.to_string(),
        name => name.to_owned(),
    };
    let case = format!("{}, {name}", text.replace('|', "/"));
    let tolerance = if truncated { digit } else { digit / 2.0 };
    Some(self::row(
        source,
        case,
        (paper, tolerance),
        ours,
        truncated.then_some(TRUNCATED),
    ))
}

/// Table 4: both L, and the parameters of the decision function.
fn of_overlap(row: &Row<'_>) -> Option<Vec<Comparison>> {
    let source = "Salisbury, Chen and Melhem 1999, Table 4";
    let document: Document = parse(row.text("requests")).ok()?;
    let natural = Partitioning::by(Method::Natural, &document).ok()?;
    let [first, second] = natural.partitions[..] else {
        return None;
    };
    let paths = document.sequence.paths();
    let share = first.requests as f64 / document.sequence.len() as f64;
    let mut all = vec![
        of_partitioning(row, source, Method::Natural, "natural_l")?,
        of_partitioning(row, source, Method::Single, "single_l")?,
    ];
    for (column, name, ours) in [
        ("l1_over_lambda", "l_1/lambda", first.paths as f64 / paths as f64),
        ("u1", "u_1", share),
        ("l2_over_l1", "l_2/l_1", second.paths as f64 / first.paths as f64),
    ] {
        let printed = (row.number(column)?, row.last_digit(column) / 2.0);
        all.push(self::row(
            source,
            format!("{}, {name}", row.text("requests")),
            printed,
            ours,
            None,
        ));
    }
    // d (6) is the ratio of the two printed L.
    let (above, below) = (row.number("natural_l")?, row.number("single_l")?);
    let half = (row.last_digit("natural_l") / above + row.last_digit("single_l") / below) / 2.0;
    let d = Decision::of(&natural.partitions, paths as u64).d;
    let case = format!("{}, d (6), the ratio of the printed L", row.text("requests"));
    all.push(self::row(
        source,
        case,
        (above / below, half * above / below),
        d,
        None,
    ));
    Some(all)
}

/// Overlap up to which, or from which on, a partitioning is the better one; `None` only if a row is not understood.
fn thresholds() -> Option<Vec<Comparison>> {
    let compare = |row: Row<'_>| {
        let source = match row.text("where") {
            "4.2" => "Salisbury, Chen and Melhem 1999, 4.2",
            "4.3" => "Salisbury, Chen and Melhem 1999, 4.3",
            "Table 5" => "Salisbury, Chen and Melhem 1999, Table 5",
            "Table 7" => "Salisbury, Chen and Melhem 1999, Table 7",
            _ => return None,
        };
        let printed = (row.number("printed")?, row.number("tolerance")?);
        let slip = (row.text("loops"), row.text("ours")) == ("3", "core natural");
        let slip = slip.then_some("the same row prints 2w for w in the general form, which gives 1.86");
        let case = row.text("case").replace(';', ",");
        let mut found = self::row(source, case, printed, threshold(&row)?, slip);
        found.deviation = (row.text("ours") == "always")
            .then_some("true for 16 loops and more, as printed, but from 12 on");
        Some(found)
    };
    tables::LOCALITY_TEXT.table().rows().map(compare).collect()
}

/// What a row of the table is called under `ours`.
fn threshold(row: &Row<'_>) -> Option<f64> {
    let ours = row.text("ours");
    if ours == "always" {
        let always = |loops: &u32| Thresholds::of(*loops).shifting_paths.natural_at_most > 1.0;
        return (2..1000).find(always).map(f64::from);
    }
    let of = Thresholds::of(row.number("loops")? as u32);
    Some(match ours {
        "equal natural" => of.equal_loops.natural_at_most,
        "equal single" => of.equal_loops.single_at_least,
        "1 / equal natural" => 1.0 / of.equal_loops.natural_at_most,
        "10 / equal natural" => 10.0 / of.equal_loops.natural_at_most,
        "10 / equal single" => 10.0 / of.equal_loops.single_at_least,
        "core natural" => of.core_paths.natural_at_most,
        "core single" => of.core_paths.single_at_least,
        "shifting natural" => of.shifting_paths.natural_at_most,
        "admissible natural" => of.admissible.natural_at_most,
        "alternative equal natural" => of.alternative.equal_loops.natural_at_most,
        "alternative core natural" => of.alternative.core_paths.natural_at_most,
        _ => return None,
    })
}

/// 5.2: the correlation of cost and 1/L.
fn correlations(equal: &Table) -> Vec<Comparison> {
    let source = "Salisbury, Chen and Melhem 1999, 5.2";
    let table_6 = || {
        let network = Network::new(50.0, 1.0, 1).ok()?;
        let point = |row: Row<'_>| {
            let natural = Partitioning::by(Method::Natural, &parse(row.text("requests")).ok()?).ok()?;
            let cost = network.cost(&natural.partitions).total;
            Some((cost, 1.0 / natural.locality().locality))
        };
        pearson(&equal.rows().filter_map(point).collect::<Vec<_>>())
    };
    let fitted = Some("fitted: the network is not printed; m = 1 and E m/A from 30 to 100 give it, here 50");
    let restricted = Some(
        "given: 0.60 to 0.80; the network and the restrictions are not printed: here E = 1000, A = 1, m = 16",
    );
    let mut all: Vec<Comparison> = table_6()
        .map(|ours| row(source, "cost and 1/L of Table 6", (0.93, 0.005), ours, fitted))
        .into_iter()
        .collect();
    for loops in [2, 3, 5, 8] {
        let random =
            || experiment::run(&Network::new(1000.0, 1.0, 16).ok()?, 1000, Some(loops), 1).correlation;
        let case = format!("cost and 1/L of 1000 random programs of {loops} loops");
        all.extend(random().map(|ours| row(source, case, (0.7, 0.1), ours, restricted)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_of_the_text_is_compared() {
        let compared = thresholds().map(|all| all.len());
        assert_eq!(compared, Some(tables::LOCALITY_TEXT.table().rows().count()));
    }
}
