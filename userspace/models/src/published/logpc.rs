//! Moritz and Frank 2001: Table 4, and the numbers that the text prints for the other equations.

use perturb_quantity::{ByteSize, Cycles};

use super::tables::{self, Row, Table};
use super::{Comparison, Measurements};
use crate::logpc::application::{self, Application, ApplicationTime};
use crate::logpc::message::LogGp;
use crate::logpc::network::{Network, Wiring};
use crate::logpc::{Kind, Parameters, Pattern, predict};
use crate::mesh::Mesh;

const TABLE_4: &str = "Moritz and Frank 2001, Table 4";
const SECTIONS: [&str; 7] = [
    "Moritz and Frank 2001, 2.2",
    "Moritz and Frank 2001, 3.3",
    "Moritz and Frank 2001, 3.4",
    "Moritz and Frank 2001, 5.1.1",
    "Moritz and Frank 2001, 5.1.2",
    "Moritz and Frank 2001, 5.1.3",
    "Moritz and Frank 2001, 5.2.2",
];

/// Neither is printed: these give the printed C_n of both rows.
const MESSAGE_BYTES: f64 = 44.0;
const DISTANCE: f64 = 2.0;
const FITTED: &str = "fitted: message size and distance are not printed; 44 B and k_d = 2 give both C_n";

/// The machine's mesh.
pub const SHAPE: [u32; 2] = [8, 4];

fn network() -> Network {
    Network {
        dimensions: 2,
        distance: DISTANCE,
        wiring: Wiring::Mesh,
    }
}

/// The parameters of Table 4's remap, `synchronous` or `asynchronous`.
#[must_use]
pub fn remap(kind: &str) -> Option<Parameters> {
    parameters(&table_4().find("type", kind)?)
}

/// The parameters of a row, from Table 1 with two arguments.
fn parameters(row: &Row<'_>) -> Option<Parameters> {
    let overheads = tables::LOGPC_TABLE1.table();
    let two = overheads.find("arguments", "2")?;
    Some(Parameters {
        network: network(),
        shape: None,
        message: LogGp {
            latency: two.number("latency_cycles")?,
            send: two.number("send_overhead_cycles")?,
            receive: two.number("receive_overhead_cycles")?,
            bytes: MESSAGE_BYTES,
            gap_per_byte: 1.0,
            header: 0.0,
            gap_memory: None,
        },
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
    tables::LOGPC_TABLE4.table()
}

/// A long message by Table 2. a is the header's 8 bytes (2.1) and G_m half of G, 45 % slower when both DMA
/// engines work (2.2): the paper prints neither for long messages.
fn long_message(bytes: f64) -> Option<LogGp> {
    let table = tables::LOGPC_TABLE2.table();
    let row = table.rows().next()?;
    Some(LogGp {
        latency: row.number("latency_cycles")?,
        send: row.number("send_overhead_cycles")?,
        receive: row.number("receive_overhead_cycles")?,
        bytes,
        gap_per_byte: row.number("gap_cycles_per_byte")?,
        header: 8.0,
        gap_memory: Some(0.3625),
    })
}

/// Long messages as fast as possible, or the program with them.
#[must_use]
pub fn bulk(bytes: f64, application: Option<Application>) -> Option<Parameters> {
    Some(Parameters {
        network: network(),
        shape: None,
        message: long_message(bytes)?,
        pattern: Pattern {
            kind: Kind::Bulk,
            work: 0.0,
            resource_contention: None,
            messages: 1,
        },
        application,
    })
}

/// Fig. 9's Diamond DAG.
#[must_use]
pub fn diamond_dag(bytes: f64) -> Option<ApplicationTime> {
    let dag = Application::DiamondDag {
        size: 1024,
        processors: 32,
        point: Cycles(100.0),
        aggregation: Cycles(0.0),
        bytes_per_point: ByteSize(8.0),
        message: Some(ByteSize(bytes)),
        blocks: Some(64),
    };
    application::time(&bulk(bytes, Some(dag))?)
}

/// (12) 2 k_dl where every processor sends to the one before and the one after it in number.
fn neighbors() -> Option<f64> {
    let mesh = Mesh::new(&SHAPE, Wiring::Mesh).ok()?;
    let nodes = mesh.nodes();
    let hops = |p: u32| mesh.path(p, (p + nodes - 1) % nodes).len() + mesh.path(p, (p + 1) % nodes).len();
    Some((0..nodes).map(hops).sum::<usize>() as f64 / 2.0 / f64::from(nodes))
}

pub(super) fn comparisons() -> Vec<Comparison> {
    let table = table_4();
    let mut all: Vec<Comparison> = table.rows().flat_map(|row| of_row(&row)).collect();
    all.extend(of_text(&table).unwrap_or_default());
    all
}

/// What the text prints; `None` only if a table lacks a value, or a row is not understood.
fn of_text(table: &Table) -> Option<Vec<Comparison>> {
    let synchronous = table.find("type", "synchronous")?;
    let asynchronous = table.find("type", "asynchronous")?;
    let measured = |row: &Row<'_>| row.number("measured_cycles");
    let short = parameters(&synchronous)?.message;
    let reply = predict(&parameters(&synchronous)?);
    let one_way = predict(&parameters(&asynchronous)?);
    let remap = predict(&bulk(10_000.0, None)?);
    let message = long_message(10_000.0)?;
    let interval = remap.intermessage_cycles? / message.bytes;
    let error = (reply.logpc_cycles / measured(&synchronous)? - 1.0) * 100.0;
    let waits = reply.resource_contention_cycles? / measured(&synchronous)? * 100.0;
    let above = (measured(&asynchronous)? / one_way.logpc_cycles - 1.0) * 100.0;
    let distances = SHAPE.map(|radix| Wiring::Mesh.mean_distance(radix)).iter().sum();
    let fitted_memory =
        Some("fitted: a = 8 B and G_m = 0.3625 cycles/B are not printed; the size is printed as \"about\"");
    let distance =
        Some("given: k_d = 2, the mean distance to other nodes, 3.875/2 x 32/31; 3.875/2 gives 2.17");
    let processors = Some("given: 32 processors and a = 8 B are not printed with the figure");
    // In the order of the table.
    let ours = [
        (message.crossover()?, fitted_memory),
        (distances, None),
        (neighbors()?, None),
        (remap.greatest_inflation?, distance),
        (short.receive + short.send, None),
        (reply.network_contention_cycles? * 2.0, Some(FITTED)),
        (waits, Some("given: C_r")),
        (error, Some(FITTED)),
        (above, None),
        (message.interval() / message.bytes, None),
        (interval, distance),
        (remap.inflation?, distance),
        (diamond_dag(32_000.0)?.communication_ratio?, processors),
    ];
    let end_around = "1.875 counts the step from node 31 to node 0 as 8 hops; without end-around channels it is 10, and the mean \
                      1.9375";
    let compare = |(row, (ours, reading)): (Row<'_>, (f64, Option<&'static str>))| {
        let case = row.text("case").replace(';', ",");
        Some(Comparison {
            model: "logpc",
            source: SECTIONS
                .into_iter()
                .find(|source| source.rsplit(' ').next() == Some(row.text("where")))?,
            deviation: case.ends_with("(12)").then_some(end_around),
            case,
            unit: row.text("unit"),
            paper: row.number("printed")?,
            ours,
            tolerance: row.number("tolerance")?,
            reading,
        })
    };
    let printed = tables::LOGPC_TEXT.table();
    (printed.rows().count() == ours.len()).then_some(())?;
    printed.rows().zip(ours).map(compare).collect()
}

fn of_row(row: &Row<'_>) -> Vec<Comparison> {
    let Some(found) = parameters(row).map(|parameters| predict(&parameters)) else {
        return Vec::new();
    };
    // C_n and C_r are part of the synchronous cycle alone.
    let synchronous = found.resource_contention_cycles.is_some();
    let given = synchronous.then_some("given: C_r");
    let fitted = synchronous.then_some(FITTED);
    let columns = [
        ("logp_cycles", Some(found.logp_cycles), None),
        ("lopc_cycles", Some(found.lopc_cycles), given),
        ("logpc_cycles", Some(found.logpc_cycles), fitted),
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

/// The remap as measured on Alewife, and the Diamond DAG where contention is greatest.
pub(super) fn measurements() -> Vec<Measurements> {
    let of_row = |row: &Row<'_>| {
        let found = predict(&parameters(row)?);
        let pair = (row.number("measured_cycles")?, found.logpc_cycles);
        Measurements::of("logpc", TABLE_4, format!("{} remap", row.text("type")), [pair])
    };
    let of_long = || {
        let interval = predict(&bulk(10_000.0, None)?).intermessage_cycles? / 10_000.0;
        let case = "long remap, T_c/B".to_owned();
        Measurements::of("logpc", "Moritz and Frank 2001, 5.1.3", case, [(2.03, interval)])
    };
    let of_dag = || {
        let found = diamond_dag(320_000.0)?;
        let case = "Diamond DAG of 320,000 B, random over perfect mapping, against the bound".to_owned();
        let pair = (1.56, found.logpc_cycles / found.logp_cycles);
        Measurements::of("logpc", "Moritz and Frank 2001, 5.2.2", case, [pair])
    };
    let mut all: Vec<Measurements> = table_4().rows().filter_map(|row| of_row(&row)).collect();
    all.extend(of_long());
    all.extend(of_dag());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_of_the_text_is_compared() {
        let compared = of_text(&table_4()).map(|all| all.len());
        assert_eq!(compared, Some(tables::LOGPC_TEXT.table().rows().count()));
    }
}
