//! `perturb status --flows`: what an emulation has seen, and as requests for `perturb locality`.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    harness::{Setting, Test, each, thrice},
    runs::run_script,
};

pub(crate) const TESTS: &[Test] = &[each(
    "flows::packets_become_requests_and_working_sets",
    |setting| thrice(|| requests(setting)),
)];

/// Two phases: h1 talks to h2, then to h3. Who watches sees every packet; a second watcher is refused; what comes
/// after the watch is in the list only.
const SCRIPT: &str = r#"
    "$PERTURB" status --flows --watch --json > "$FOLDER/requests" 2> "$FOLDER/said" &
    watcher=$!
    for attempt in $(seq 300); do
        grep -q watching "$FOLDER/said" && break
        sleep 0.1
    done
    grep -q watching "$FOLDER/said" || exit 9
    ping -4 -q -c 20 -i 0.02 h2 > /dev/null && ping -4 -q -c 20 -i 0.02 h3 > /dev/null || exit 10
    sleep 0.3
    "$PERTURB" status --flows --watch 100ms 2> "$FOLDER/refused" && exit 11
    kill -INT $watcher
    wait $watcher || exit 12
    "$PERTURB" on h2 -- ping -4 -q -c 1 h3 > /dev/null || exit 13
    "$PERTURB" status --flows --json > "$FOLDER/list" && "$PERTURB" status --flows > "$FOLDER/table" || exit 14
    "$PERTURB" locality "$FOLDER/requests" --json > "$FOLDER/locality" || exit 15
    "$PERTURB" locality "$FOLDER/list" --json > /dev/null || exit 16
"#;

/// Phases are found by time, in which a busy machine puts pauses of its own: what is wrong with them is the answer.
fn requests(setting: &Setting) -> Result<Option<String>> {
    let folder = TempDir::with_prefix("perturb-flows-")?;
    run_script(setting, "latency: 1ms", SCRIPT, folder.path())?;
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).context(name.to_owned());

    let lines: Vec<Value> = read("requests")?
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let pairs: Vec<String> = lines
        .iter()
        .filter(|line| line["protocol"] == "icmp")
        .map(pair)
        .collect();
    // On a busy machine a request goes out before the last reply is in.
    let (first, second) = pairs.split_at(pairs.len() / 2);
    for (phase, expected) in [(first, ["1>2", "2>1"]), (second, ["1>3", "3>1"])] {
        let counts = expected.map(|pair| phase.iter().filter(|seen| *seen == pair).count());
        ensure!(
            counts == [20, 20] && phase.len() == 40 && phase[0] == expected[0],
            "the requests are {pairs:?}"
        );
    }
    ensure!(
        lines.is_sorted_by_key(|line| line["time_us"].as_u64().unwrap_or_default()),
        "the requests are not in order: {lines:?}"
    );
    ensure!(
        lines
            .iter()
            .all(|line| line["packets"] == 1 && line["class"] == "all"),
        "{lines:?}"
    );
    ensure!(
        read("refused")?.contains("another process watches"),
        "a second watcher was not refused: {}",
        read("refused")?
    );

    let list: Vec<Value> = serde_json::from_str(&read("list")?)?;
    let mut listed: Vec<String> = list
        .iter()
        .filter(|flow| flow["protocol"] == "icmp")
        .map(pair)
        .collect();
    ensure!(
        listed == ["1>2", "2>1", "1>3", "3>1", "2>3", "3>2"],
        "the list, by first packet, is {list:?}"
    );
    let table = read("table")?;
    listed.retain(|pair| !table.contains(&format!("10.77.0.{}", &pair[2..])));
    ensure!(listed.is_empty(), "the table lacks {listed:?}: {table}");

    // What is not ICMP would be a path of its own, and is not there.
    let locality: Value = serde_json::from_str(&read("locality")?)?;
    ensure!(
        locality["requests"] == lines.len() && locality["paths"] == 4,
        "perturb locality says {locality}"
    );
    let partitions = locality["partitions"].as_array().context("no partitions")?;
    let last = |phase: &Value| phase["paths"] == 2 && phase["requests"] == 40;
    let found = partitions.len() == 2 && partitions.iter().all(last);
    Ok((!found).then(|| format!("the two phases are {partitions:?}")))
}

/// The last numbers of the addresses of source and destination.
fn pair(line: &Value) -> String {
    let host = |key: &str| {
        let address = line[key].as_str().unwrap_or_default();
        address.rsplit(['.', ':']).next().unwrap_or_default().to_owned()
    };
    format!("{}>{}", host("source"), host("destination"))
}
