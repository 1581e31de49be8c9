//! Fig. 11 live: EM3D's messages by span, as an asynchronous remap on an emulated mesh (`perturb pattern remap --span`).

use anyhow::Context as _;
use perturb_models::published::logpc::remap;
use perturb_present::{Table, computed};

use super::super::{
    figure::{Differs, Figure, Paper, Setting},
    outcome::{Curve, Outcome, Panel, Row, Scale},
};
use super::live::{ALEWIFE, PROCESSORS, SMALL, STORED, short};

pub(super) const FIGURE: Figure = Figure::emulation(
    Paper::MoritzFrank,
    "moritz-frank-fig-11-live",
    "interval of EM3D's messages on an emulated mesh of 32 hosts, by span",
    2.0,
    draw,
)
.quick(0.5)
.differs(&[
    Differs {
        what: "the communication phase alone, some hundred messages of each process",
        why: "the paper does not print the computation; a message costs the same in each iteration",
    },
    Differs {
        what: "each message goes to a process at most a span away in number, drawn anew",
        why: "that is the paper's improved distribution; its graph is not printed",
    },
    Differs {
        what: "sends never stall",
        why: "nothing holds up a send on the emulated network; on Alewife hot spots did, which the paper reduced by 70 %",
    },
    STORED,
    PROCESSORS,
]);

fn draw(setting: &Setting) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let (machine, spans, messages): (_, &[u32], _) = if setting.quick {
        outcome.differs.push(Differs {
            what: "16 hosts in a mesh of 4 x 4",
            why: "the short form; distances are shorter, so there is less contention",
        });
        (SMALL, &[1, 3, 7], 100)
    } else {
        (ALEWIFE, &[1, 2, 4, 8, 15], 400)
    };
    // Ten values of a word and a header are the 44 B of the remap.
    let parameters = remap("asynchronous").context("Table 4")?;
    let predicted = parameters.message.send + parameters.message.receive;
    let header = [
        "span",
        "interval, cycles",
        "o_s + o_r",
        "wait of a frame, cycles",
        "channels",
    ];
    let mut table = Table::new(1, &header);
    let (mut intervals, mut waits) = (Vec::new(), Vec::new());
    for &span in spans {
        let options = format!(
            "--style asynchronous --mapping random --span {span} --iterations {messages} {}",
            short(&parameters)
        );
        let live = machine.remap(setting, &mut outcome, &options)?;
        table.row(vec![
            span.to_string(),
            computed(live.interval),
            computed(predicted),
            computed(live.wait),
            computed(live.hops),
        ]);
        let case = format!("span {span}, a message, beside o_s + o_r");
        let row = Row::measured(case, "cycles", predicted, live.interval);
        outcome
            .rows
            .push(row.fitted("given: the run has these o_s and o_r; the figure prints no number"));
        intervals.push((f64::from(span), live.interval));
        waits.push((f64::from(span), live.wait));
    }
    let line: Vec<_> = intervals.iter().map(|(span, _)| (*span, predicted)).collect();
    outcome.panels = vec![Panel {
        title: "cycles of a message by span".into(),
        x: Scale::linear("span", ""),
        y: Scale::linear("time", "cycles"),
        curves: vec![
            Curve::new("interval, live", [], intervals),
            Curve::new("o_s + o_r", [], line),
            Curve::new("wait of a frame, live", [], waits),
        ],
    }];
    outcome
        .tables
        .push(("Live; waits are the emulator's counters'".into(), table));
    Ok(outcome)
}
