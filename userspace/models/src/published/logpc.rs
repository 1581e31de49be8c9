//! Moritz and Frank 2001, Table 4 and the bound of (14).

use super::table::{Row, Table};
use super::{Comparison, Measurements};
use crate::logpc::message::LogGp;
use crate::logpc::network::{Network, Wiring};
use crate::logpc::{Kind, Parameters, Pattern, predict};

const TABLE_4: &str = "Moritz and Frank 2001, Table 4";

/// Neither is printed: these give the printed C_n of both rows.
const MESSAGE_BYTES: f64 = 44.0;
const DISTANCE: f64 = 2.0;
const FITTED: &str = "message size and distance are not printed; 44 B and k_d = 2 fit";

fn network() -> Network {
    Network {
        dimensions: 2,
        distance: DISTANCE,
        wiring: Wiring::Mesh,
    }
}

/// The parameters of a row, from Table 1 with two arguments.
fn parameters(row: &Row<'_>) -> Option<Parameters> {
    let overheads = Table::new(include_str!(
        "../../tests/data/tables/logpc-table1-short-messages.csv"
    ));
    let two = overheads.find("arguments", "2")?;
    Some(Parameters {
        network: network(),
        shape: None,
        message: LogGp {
            latency: two.number("latency_cycles")?,
            send: two.number("send_overhead_cycles")?,
            receive: two.number("receive_overhead_cycles")?,
            channel: MESSAGE_BYTES,
        },
        bytes: MESSAGE_BYTES,
        pattern: Pattern {
            kind: if row.text("type") == "synchronous" {
                Kind::RequestReply
            } else {
                Kind::OneWay
            },
            work: 0.0,
            resource_contention: row.number("resource_contention_cycles"),
            messages: 1,
        },
        application: None,
    })
}

fn table_4() -> Table {
    Table::new(include_str!("../../tests/data/tables/logpc-table4-remap.csv"))
}

pub(super) fn comparisons() -> Vec<Comparison> {
    let mut all: Vec<Comparison> = table_4().rows().flat_map(|row| of_row(&row)).collect();
    all.push(Comparison {
        model: "logpc",
        source: "Moritz and Frank 2001, (14)",
        case: "greatest T_c/T, n = 2".into(),
        unit: "",
        paper: 2.22,
        ours: network().greatest_inflation(),
        tolerance: 0.005,
        reading: Some("belongs to k_d = 2"),
        deviation: None,
    });
    all
}

fn of_row(row: &Row<'_>) -> Vec<Comparison> {
    let Some(found) = parameters(row).map(|parameters| predict(&parameters)) else {
        return Vec::new();
    };
    let columns = [
        ("logp_cycles", Some(found.logp_cycles), None),
        ("lopc_cycles", Some(found.lopc_cycles), None),
        ("logpc_cycles", Some(found.logpc_cycles), Some(FITTED)),
        (
            "network_contention_cycles",
            found.network_contention_cycles,
            Some(FITTED),
        ),
    ];
    let compare = |(column, ours, reading): (&'static str, Option<f64>, Option<&'static str>)| {
        Some(Comparison {
            model: "logpc",
            source: TABLE_4,
            case: format!(
                "{}, {}",
                row.text("type"),
                column.trim_end_matches("_cycles").replace('_', " ")
            ),
            unit: "cycles",
            paper: row.number(column)?,
            ours: ours?,
            tolerance: row.last_digit(column) / 2.0,
            reading,
            deviation: None,
        })
    };
    columns.into_iter().filter_map(compare).collect()
}

/// The remap as measured on Alewife.
pub(super) fn measurements() -> Vec<Measurements> {
    let of_row = |row: &Row<'_>| {
        let found = predict(&parameters(row)?);
        let pair = (row.number("measured_cycles")?, found.logpc_cycles);
        Measurements::of("logpc", TABLE_4, format!("{} remap", row.text("type")), [pair])
    };
    table_4().rows().filter_map(|row| of_row(&row)).collect()
}
