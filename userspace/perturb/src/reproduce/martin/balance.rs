//! Fig. 3.1 and the shares of Table 3.2: who sends to whom, as `perturb split-c` counts it.

use std::env;

use anyhow::{Context as _, ensure};
use perturb_models::published::tables;
use perturb_present::{Table, computed, matrix};

use super::super::{
    figure::{Differs, Figure, Paper, Setting},
    outcome::{Outcome, Row},
};
use super::sweeps::SPLIT_C;

pub(super) static FIGURES: &[Figure] = &[Figure::emulation(
    Paper::Martin,
    "martin-fig-3.1-measured",
    "communication balance of the Split-C programs, and their shares of reads and bulk messages",
    1.0,
    fig_3_1,
)
.differs(&[
    Differs {
        what: "4 or 8 hosts and inputs of 1/64 to 1/4096, as in configs/experiments/split-c.yaml",
        why: "all hosts share this machine's processors",
    },
    Differs {
        what: "what is compared is Table 3.2: the process that sends most over the mean, reads, bulk messages",
        why: "the figure is greys without numbers",
    },
    Differs {
        what: "most of Barnes's messages are reads, and not 21 %",
        why: "with 128 bodies for each process, and not 31,250, most time goes into the tree",
    },
    Differs {
        what: "hardly any of Radb's messages are bulk, and not 35 %",
        why: "each process sends one to each other in a pass: 3 beside a histogram, where 32 processors have 31",
    },
    Differs {
        what: "the busiest process of P-Ray and Sample is nearer to the mean, that of Barnes, Connect and Radb farther from it",
        why: "hosts are few and inputs small; more was not looked into",
    },
    Differs {
        what: "NOW-sort's and other writers' replies are TCP's, and no messages; a state of Murphi's is one word",
        why: "messages are TCP segments; the protocol is German's, not SCI",
    },
])];

/// Shares are compared to a tenth of them, or to one in a hundred messages.
const PERCENT: f64 = 1.0;

fn fig_3_1(setting: &Setting) -> anyhow::Result<Outcome> {
    const NETWORK: &str =
        "version: 1\nname: star\ntopology: { kind: star, link: { bandwidth: 1Gbit/s, latency: 20us } }\n";
    let mut outcome = Outcome::default();
    let path = setting.write("star.yaml", NETWORK)?;
    let own = env::current_exe().context("finding this executable")?;
    let header = [
        "program",
        "hosts",
        "messages",
        "paper's",
        "of the busiest, over the mean",
        "paper's",
        "reads, %",
        "paper's",
        "bulk, %",
        "paper's",
    ];
    let mut table = Table::new(1, &header);
    let printed = tables::MARTIN_3_2.table();
    for workload in SPLIT_C.programs(setting)?.workloads {
        let published = workload.published.unwrap_or_default().replace('-', "_");
        let paper = printed.find("application", &published).context("Table 3.2")?;
        let number = |column: &str| paper.number(column).context("Table 3.2");
        // A command for the shell, which knows this program as $PERTURB.
        let command = workload.command.last().map_or("", String::as_str);
        let arguments = command
            .strip_prefix("\"$PERTURB\" ")
            .with_context(|| format!("{}: no program of perturb's own", workload.name))?;
        let (own, path, hosts) = (
            own.to_string_lossy(),
            path.to_string_lossy(),
            workload.hosts.to_string(),
        );
        let mut words = vec!["run", &*path, "--hosts", &*hosts, "--", &*own];
        words.extend(arguments.split_whitespace());
        let found = setting.json(&mut outcome, &words)?;
        let count = |key: &str| found[key].as_f64().with_context(|| key.to_owned());
        let messages = count("messages")?;
        let balance = [
            number("messages_max_per_proc")? / number("messages_average_per_proc")?,
            count("messages_of_busiest")? * f64::from(workload.hosts) / messages,
        ];
        let shares = [
            ("reads", number("read_messages_percent")?, count("reads_percent")?),
            (
                "bulk messages",
                number("bulk_messages_percent")?,
                count("bulk_percent")?,
            ),
        ];
        table.row(vec![
            workload.name.to_string(),
            hosts.to_string(),
            computed(messages),
            computed(number("messages_average_per_proc")? * 32.0),
            computed(balance[1]),
            computed(balance[0]),
            computed(shares[0].2),
            computed(shares[0].1),
            computed(shares[1].2),
            computed(shares[1].1),
        ]);
        let case = |what: &str| format!("{}, {what}", workload.name);
        let busiest = case("messages of the busiest process over the mean");
        outcome
            .rows
            .push(Row::measured(busiest, "", balance[0], balance[1]));
        for (what, paper, ours) in shares {
            let tolerance = PERCENT.max(0.1 * paper);
            outcome
                .rows
                .push(Row::new(case(what), "%", (paper, tolerance), ours));
        }
        let sent: Vec<Vec<u64>> =
            serde_json::from_value(found["matrix"].clone()).context("who sent to whom")?;
        ensure!(
            sent.len() == workload.hosts as usize,
            "who sent to whom: {sent:?}"
        );
        let names: Vec<String> = (1..=workload.hosts).map(|host| format!("h{host}")).collect();
        let name = workload.name.as_str();
        let caption = format!("{name}: messages from each (row) to each (column)");
        outcome.pictures.push((caption, matrix::svg(name, &names, &sent)));
    }
    outcome
        .tables
        .push(("Table 3.2 beside what was counted".into(), table));
    Ok(outcome)
}
