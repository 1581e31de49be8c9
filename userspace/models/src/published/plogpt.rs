//! Nomura, Matsuba and Ishikawa 2007: the worked example of figs. 9 to 12, and the switches and
//! time-outs that section IV-B tells of Table II.

use perturb_quantity::{ByteSize, BytesPerSecond, Micros};

use super::Comparison;
use super::tables;
use crate::plogpt::{
    CollectiveKind, Competitors, GapPoint, Link, Network, OpInput, Parameters, PlogptInput, PlogptPrediction,
    ProgramInput, Receive, Send, Sharing, predict,
};

/// Size of the example's messages.
const FIG9_MESSAGE: ByteSize = ByteSize(24.0);

/// Message size at which Table II's network is looked at; its gap is not printed.
const TABLE2_MESSAGE: ByteSize = ByteSize(1e5);

pub(super) fn comparisons() -> Vec<Comparison> {
    let mut all = fig9();
    all.extend(table2());
    all
}

fn row(source: &'static str, case: &str, unit: &'static str, paper: f64, ours: f64) -> Comparison {
    Comparison {
        model: "plogpt",
        source,
        case: case.to_owned(),
        unit,
        paper,
        ours,
        tolerance: 0.0,
        reading: None,
        deviation: None,
    }
}

fn fig9() -> Vec<Comparison> {
    const SOURCE: &str = "PlogPT, figs. 9 to 12";
    let Ok(prediction) = predict(&fig9_input()) else {
        return Vec::new();
    };
    let time = |rank, op, leave: bool| {
        let operation = prediction.operations.of_rank(rank).nth(op);
        operation.and_then(|operation| {
            if leave {
                Some(operation.leave_us)
            } else {
                operation.finish_us
            }
        })
    };
    let mut all = vec![row(SOURCE, "total", "us", 26.0, prediction.total_us)];
    for rank in 0..4 {
        all.extend(time(rank, 1, false).map(|ours| {
            row(
                SOURCE,
                &format!("first isend of rank {rank} finishes"),
                "us",
                12.0,
                ours,
            )
        }));
        all.extend(time(rank, 3, true).map(|ours| {
            row(
                SOURCE,
                &format!("wait of rank {rank} for its irecv leaves"),
                "us",
                15.0,
                ours,
            )
        }));
    }
    all
}

/// Fig. 9: `g(24 B) = 8`, `b(1) = 3`, `b(2) = 4`, `L = 3`; what is not printed plays no part.
fn fig9_input() -> PlogptInput {
    let link = |bandwidth: f64| Link {
        bandwidth: BytesPerSecond(bandwidth * 1e6),
        buffer_delay: Micros(10.0),
    };
    let exchange = |partner| {
        vec![
            OpInput::Irecv(Receive {
                from: partner,
                size: Some(FIG9_MESSAGE),
            }),
            OpInput::Isend(Send {
                to: partner,
                size: FIG9_MESSAGE,
            }),
            OpInput::Wait(1),
            OpInput::Wait(0),
        ]
    };
    let mut ranks: Vec<Vec<OpInput>> = [2, 3, 0, 1].map(exchange).to_vec();
    ranks[0].extend([
        OpInput::Isend(Send {
            to: 3,
            size: FIG9_MESSAGE,
        }),
        OpInput::Wait(4),
    ]);
    ranks[3].extend([
        OpInput::Irecv(Receive {
            from: 0,
            size: Some(FIG9_MESSAGE),
        }),
        OpInput::Wait(4),
    ]);
    PlogptInput {
        parameters: Parameters {
            nodes: 4,
            latency: Micros(3.0),
            rto: Micros(200_000.0),
            jitter: Micros(1.0),
            switch_tolerance: 0.001,
            links: vec![link(3.0), link(4.0)],
            one_way_links: None,
            gap: vec![GapPoint {
                size: FIG9_MESSAGE,
                gap: Micros(8.0),
            }],
            sharing: Sharing::FullDuplex,
            competitors: Competitors::Starting,
        },
        program: ProgramInput {
            ranks: Some(ranks),
            collective: None,
            message: None,
            root: None,
        },
    }
}

fn table2() -> Vec<Comparison> {
    const SOURCE: &str = "PlogPT, section IV-B";
    let parameters = table2_parameters();
    let mut all = Vec::new();
    if let Ok(network) = Network::new(&parameters, false) {
        for (height, paper) in (1..).zip([1.0, 0.0, 0.0, 1.0]) {
            let ours = network.different_switches(height, height + 1);
            let case = format!("P_S({height}, {}), 1 for true", height + 1);
            all.push(Comparison {
                reading: Some("given input: the tolerance is not printed"),
                ..row(SOURCE, &case, "", paper, f64::from(u8::from(ours)))
            });
        }
    }
    let total = |kind| {
        predict(&PlogptInput {
            parameters: parameters.clone(),
            program: ProgramInput {
                ranks: None,
                collective: Some(kind),
                message: Some(TABLE2_MESSAGE),
                root: None,
            },
        })
        .ok()
    };
    let timeouts = |prediction: &PlogptPrediction| f64::from(prediction.retransmission_timeouts);
    for (kind, paper) in [(CollectiveKind::AlltoallA, 0.0), (CollectiveKind::AlltoallB, 2.0)] {
        let case = format!("time-outs on the longest path, {kind}, 32 nodes");
        all.extend(total(kind).map(|prediction| Comparison {
            reading: Some("given input: latency, gap, jitter and message size are not printed"),
            ..row(SOURCE, &case, "", paper, timeouts(&prediction))
        }));
    }
    all
}

/// Table II, both directions loaded. The latency, the gap and the jitter are not printed; they are
/// chosen such that a step of A starts later than the jitter after the one before.
#[must_use]
pub fn table2_parameters() -> Parameters {
    let table = tables::PLOGPT_TABLE2.table();
    let links = table.rows().filter_map(|row| {
        let below = 2_f64.powi(row.number("height")? as i32 - 1);
        let per_node = row.number("bidirectional_bandwidth_per_node_mbit_s")?;
        Some(Link {
            bandwidth: BytesPerSecond(per_node * below * 1e6 / 8.0),
            buffer_delay: Micros(row.number("bidirectional_twice_delay_us")? / 2.0),
        })
    });
    let gaps = [
        (0.0, 10.0),
        (1e3, 25.0),
        (1e4, 150.0),
        (1e5, 1400.0),
        (1e6, 13_850.0),
    ];
    Parameters {
        nodes: 32,
        latency: Micros(60.0),
        rto: Micros(200_000.0),
        jitter: Micros(30.0),
        switch_tolerance: 0.001,
        links: links.collect(),
        one_way_links: None,
        gap: gaps
            .map(|(size, gap)| GapPoint {
                size: ByteSize(size),
                gap: Micros(gap),
            })
            .to_vec(),
        sharing: Sharing::FullDuplex,
        competitors: Competitors::Starting,
    }
}
