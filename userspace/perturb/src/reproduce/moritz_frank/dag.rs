//! Fig. 9 live: the Diamond DAG on an emulated mesh, by mapping (`perturb pattern diamond`).

use anyhow::Context as _;
use perturb_models::logpc::application::{self, Application};
use perturb_models::published::logpc::bulk;
use perturb_present::{Table, computed};
use perturb_quantity::{ByteSize, Cycles};

use super::super::{
    figure::{Differs, Figure, Paper, Setting},
    outcome::{Curve, Outcome, Panel, Row, Scale},
};
use super::live::{ALEWIFE, CYCLE_US, PER_BYTE, PROCESSORS, SMALL, STORED};
use super::long::payload;

pub(super) const FIGURE: Figure = Figure::emulation(
    Paper::MoritzFrank,
    "moritz-frank-fig-9-live",
    "Diamond DAG on an emulated mesh of 32 hosts, by mapping of stripes",
    5.0,
    draw,
)
.quick(1.0)
.differs(&[
    Differs {
        what: "messages and computation are a twentieth, and stripes have 16 blocks",
        why: "their ratio is the paper's, 0.625 at 32,000 B; a run takes a minute",
    },
    Differs {
        what: "a message that waits holds up no other behind it",
        why: "buffers have no limit here; Alewife's wormholes hold their channels, so that mapping costs more there",
    },
    STORED,
    PROCESSORS,
]);

/// Both the paper's messages and its blocks' computation are divided by this.
const SMALLER: f64 = 20.0;
/// W of section 5.2.2: n = 1,024, b = 64, 100 cycles per task, 32 processors.
const WORK: f64 = 100.0 * 1024.0 * 1024.0 / (32.0 * 64.0);
/// o_s of a long message (Table 2).
const SEND: f64 = 25.0;

fn draw(setting: &Setting) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let (machine, sizes, blocks): (_, &[u64], u32) = if setting.quick {
        outcome.differs.push(Differs {
            what: "16 hosts in a mesh of 4 x 4, and 8 blocks",
            why: "the short form; distances are shorter, so there is less contention",
        });
        (SMALL, &[16_000, 320_000], 8)
    } else {
        (ALEWIFE, &[16_000, 32_000, 320_000], 16)
    };
    let [width, height] = machine.shape;
    let header = [
        "message, B",
        "here, B",
        "mapping",
        "run time, cycles",
        "over perfect",
        "wait of a frame, cycles",
        "channels",
    ];
    let mut table = Table::new(3, &header);
    let mut points = Vec::new();
    for &size in sizes {
        let bytes = (size as f64 / SMALLER) as u64;
        let payload = payload(bytes);
        let per_byte = PER_BYTE * CYCLE_US * 1e3 * bytes as f64 / payload as f64;
        let mut run = |mapping: &str| {
            let row = if mapping == "perfect" {
                format!(" --row {width}")
            } else {
                String::new()
            };
            let options = format!(
                "diamond --mapping {mapping}{row} --blocks {blocks} --message {payload}B --work {:.0}us --send {:.0}us \
                 --per-byte {per_byte:.0}ns",
                WORK / SMALLER * CYCLE_US,
                SEND * CYCLE_US,
            );
            let (seen, waits) = machine.run(setting, &mut outcome, &options)?;
            let time = seen["run_time_s"].as_f64().context("a run time")?;
            anyhow::Ok((time * 1e6 / CYCLE_US, waits))
        };
        let perfect = run("perfect")?;
        let others = [("linear", run("linear")?), ("random", run("random")?)];
        for (mapping, (time, (wait, channels))) in [("perfect", perfect)].into_iter().chain(others) {
            table.row(vec![
                size.to_string(),
                bytes.to_string(),
                mapping.into(),
                computed(time),
                computed(time / perfect.0),
                computed(wait),
                computed(channels),
            ]);
        }
        let dag = Application::DiamondDag {
            size: 1024,
            processors: (width * height).into(),
            point: Cycles(WORK / SMALLER * f64::from(width * height * blocks) / 1024.0_f64.powi(2)),
            aggregation: Cycles(0.0),
            bytes_per_point: ByteSize(8.0),
            message: Some(ByteSize(bytes as f64)),
            blocks: Some(blocks.into()),
        };
        let parameters = bulk(bytes as f64, Some(dag)).context("Table 2")?;
        let model = application::time(&parameters).context("the Diamond DAG")?;
        table.row(vec![
            size.to_string(),
            bytes.to_string(),
            "M (15), without contention".into(),
            computed(model.logp_cycles),
            computed(model.logp_cycles / perfect.0),
            computed(None),
            computed(None),
        ]);
        points.push((
            size as f64,
            [perfect.0, others[0].1.0, others[1].1.0, model.logp_cycles],
        ));
        let ratio = |index: usize| others[index].1.0 / perfect.0;
        if size == 16_000 {
            let case = "M (15) over the run by perfect mapping, 16,000 B";
            let row = Row::new(case, "", (1.0, 0.0314), model.logp_cycles / perfect.0);
            outcome.rows.push(row);
            let case = "random over perfect mapping, 16,000 B: no contention";
            outcome.rows.push(Row::measured(case, "", 1.0, ratio(1)));
        }
        if size == 320_000 {
            let row = |case: &str, paper, ours| {
                Row::measured(format!("{case} over perfect mapping, 320,000 B"), "", paper, ours)
            };
            outcome.rows.push(row("random", 1.56, ratio(1)));
            outcome.rows.push(row("numbered", 1.31, ratio(0)));
        }
    }
    let names = ["perfect", "linear", "random", "M (15), without contention"];
    let curves = names.into_iter().enumerate().map(|(index, name)| {
        let own = points
            .iter()
            .map(|(size, times): &(f64, [f64; 4])| (*size, times[index]));
        Curve::new(name, [], own)
    });
    outcome.panels = vec![Panel {
        title: "run time by mapping".into(),
        x: Scale::logarithmic("message size of the paper's, here a twentieth", "B"),
        y: Scale::logarithmic("run time", "cycles"),
        curves: curves.collect(),
    }];
    let caption = "Run time by mapping; waits are the emulator's counters'";
    outcome.tables.push((caption.into(), table));
    Ok(outcome)
}
