//! Where netems stand: commands, what tc shows, tcconfig's files. Each becomes words, which [`words`](super::words) reads.

use perturb_common::abi::Direction;
use serde_json::{Map, Value};

use super::{Netem, NetemError, words};
use crate::matching::{Family, Match, PortRange, Prefix};

/// A netem, and which packets come to it.
pub(super) struct Found {
    pub(super) netem: Netem,
    /// The interface, if the text says it.
    pub(super) device: Option<String>,
    /// Which way they go.
    pub(super) way: Direction,
    /// Which of them.
    pub(super) matching: Match,
    /// The class of another queueing discipline, no netem, that gets them, `1:3`.
    pub(super) parent: Option<String>,
    /// Whether a FIFO below it keeps their order.
    pub(super) in_order: bool,
    /// Whether the distribution of a jitter is not said.
    pub(super) shapeless: bool,
}

/// A queueing discipline that is no netem, nor a FIFO below one.
pub(super) struct Other {
    pub(super) kind: String,
    pub(super) device: Option<String>,
}

/// What a text has.
pub(super) struct Sources {
    pub(super) netems: Vec<Found>,
    pub(super) others: Vec<Other>,
    /// What comes in at the first goes through the second.
    pub(super) redirects: Vec<(String, String)>,
}

/// What `tc qdisc` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Add,
    Change,
    Delete,
}

/// A queueing discipline, its options as words.
#[derive(Clone)]
struct Discipline<'t> {
    kind: &'t str,
    /// What a command does with it; none where it is shown.
    verb: Option<Verb>,
    namespace: Option<&'t str>,
    device: Option<&'t str>,
    handle: Option<&'t str>,
    parent: Option<&'t str>,
    options: Vec<String>,
    /// It is what tc shows, not what it is told.
    shown: bool,
}

pub(super) fn read(text: &str) -> Result<Sources, NetemError> {
    let text = text.trim();
    if text.starts_with(['[', '{']) {
        let value: Value = serde_json::from_str(text)
            .map_err(|error| NetemError(format!("the JSON does not end well: {error}")))?;
        return match &value {
            Value::Array(list) => {
                let list = list.iter().filter_map(of_json);
                gather(&list.collect::<Result<Vec<_>, _>>()?, Vec::new())
            }
            Value::Object(devices) => tcconfig(devices),
            _ => gather(&[], Vec::new()),
        };
    }
    // A command may go on behind a backslash; what `tc -s` says of the packets begins with a space.
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().filter(|line| !line.trim().is_empty());
    let lines: Vec<&str> = lines.filter(|line| !line.trim_start().starts_with('#')).collect();
    if lines.iter().any(|line| line.starts_with("qdisc ")) {
        let lines = lines.iter().filter(|line| line.starts_with("qdisc "));
        return gather(
            &lines.filter_map(|line| of_line(line, true)).collect::<Vec<_>>(),
            Vec::new(),
        );
    }
    let uncommented = lines
        .iter()
        .map(|line| line.split_once(" #").map_or(*line, |(command, _)| command));
    let commands: Vec<&str> = uncommented
        .flat_map(|line| line.split(';'))
        .flat_map(|line| line.split("&&"))
        .flat_map(|line| line.split("||"))
        .collect();
    let redirects = commands.iter().filter_map(|command| redirect(command)).collect();
    // Of a script, what is none of tc's does not matter.
    let of_tc = |command: &&str| command.split_whitespace().any(|word| word == "qdisc");
    let script = commands.iter().any(of_tc);
    gather(
        &commands
            .iter()
            .filter(|command| !script || of_tc(command))
            .filter_map(|command| of_line(command, false))
            .collect::<Vec<_>>(),
        redirects,
    )
}

/// `tc filter add dev eth0 ingress matchall action mirred egress redirect dev ifb0`, if it takes all packets.
fn redirect(command: &str) -> Option<(String, String)> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let all = words.contains(&"matchall") || words.windows(3).any(|three| three == ["u32", "0", "0"]);
    let target = words.iter().position(|word| *word == "redirect")?;
    let after = |from: usize| {
        let at = words.iter().skip(from).position(|word| *word == "dev")?;
        words.get(from + at + 1).map(|device| (*device).to_owned())
    };
    Some((after(0)?, after(target)?)).filter(|_| all && words.contains(&"filter"))
}

/// A line: `tc qdisc add dev eth0 root handle 1: netem delay 10ms`, `qdisc netem 1: dev eth0 root refcnt 2 limit 1000`, or options.
fn of_line(line: &str, shown: bool) -> Option<Discipline<'_>> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    words.retain(|word| *word != "sudo");
    let mut namespace = None;
    if let ["ip", "netns", "exec", name, ..] | ["tc", "-n" | "-net" | "-netns", name, ..] = *words.as_slice()
    {
        namespace = Some(name);
        words.drain(..if words.first() == Some(&"ip") { 4 } else { 0 });
    }
    if words.is_empty() || words.first() == Some(&"ip") {
        return None;
    }
    let after = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1).copied()
    };
    let owned = |from: usize| words.iter().skip(from).map(|word| (*word).to_owned()).collect();
    let mut found = Discipline {
        kind: "netem",
        verb: None,
        namespace,
        device: after("dev"),
        handle: after("handle"),
        parent: after("parent"),
        options: Vec::new(),
        shown,
    };
    if shown {
        found.kind = words.get(1)?;
        found.handle = words.get(2).copied();
        // tc always says it, before all other options.
        let limit = words.iter().position(|word| *word == "limit");
        found.options = owned(limit.unwrap_or(words.len()));
        return Some(found);
    }
    let command = words.iter().position(|word| *word == "qdisc");
    found.verb = command.and_then(|at| match *words.get(at + 1)? {
        "change" | "replace" => Some(Verb::Change),
        "del" | "delete" => Some(Verb::Delete),
        _ => Some(Verb::Add),
    });
    if found.verb == Some(Verb::Delete) {
        let other = words.contains(&"ingress") || words.contains(&"clsact");
        return Some(found).filter(|_| !other);
    }
    if let Some(at) = words.iter().position(|word| *word == "netem") {
        found.options = owned(at + 1);
        return Some(found);
    }
    if words.contains(&"tc") || command == Some(0) {
        // Another discipline, or a filter.
        command?;
        found.kind = words.iter().rev().find(|word| KINDS.contains(word))?;
        return Some(found);
    }
    (found.device, found.handle, found.parent) = (None, None, None);
    found.options = owned(0);
    Some(found)
}

/// What else tc has, as far as it is worth a word.
const KINDS: &[&str] = &[
    "pfifo", "bfifo", "tbf", "htb", "hfsc", "prio", "drr", "fq", "fq_codel", "codel", "cake", "red", "sfq",
    "pie",
];

/// One of `tc -j qdisc show`.
fn of_json(value: &Value) -> Option<Result<Discipline<'_>, NetemError>> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let kind = text("kind")?;
    let mut options = Vec::new();
    if kind == "netem"
        && let Some(Value::Object(given)) = value.get("options")
    {
        for (key, value) in given {
            let number = |name: &str| value.get(name).and_then(Value::as_f64);
            let share = |name: &str| number(name).map(|share| format!("{:.7}%", share * 100.0));
            let time = |name: &str| number(name).map(|seconds| format!("{:.0}ns", seconds * 1e9));
            let whole = |name: &str| number(name).map(|count| format!("{count:.0}"));
            let word = |text: &str| Some(text.to_owned());
            // What stands there unless it is nothing.
            let unless_zero = |name: &str| match whole(name) {
                Some(count) if count != "0" => [word(name), Some(count)],
                _ => [None, None],
            };
            let words = match key.as_str() {
                "limit" | "seed" => vec![word(key), value.as_u64().map(|value| value.to_string())],
                "gap" if value.as_u64() == Some(0) => continue,
                "gap" => vec![word(key), value.as_u64().map(|value| value.to_string())],
                "ecn" if value.as_bool() != Some(true) => continue,
                "ecn" => vec![word(key)],
                "delay" => vec![word(key), time("delay"), time("jitter"), share("correlation")],
                "loss-random" => vec![word("loss"), share("loss"), share("correlation")],
                "loss-state" => {
                    let shares = ["p13", "p31", "p32", "p23", "p14"].map(share);
                    [word("loss"), word("state")].into_iter().chain(shares).collect()
                }
                "loss-gemodel" => {
                    let shares = ["p", "r", "1-h", "1-k"].map(share);
                    [word("loss"), word("gemodel")]
                        .into_iter()
                        .chain(shares)
                        .collect()
                }
                "duplicate" | "corrupt" | "reorder" => vec![word(key), share(key), share("correlation")],
                "rate" => {
                    let rate = number("rate").map(|bytes| format!("{bytes:.0}bps"));
                    let rest = ["packetoverhead", "cellsize", "celloverhead"].map(whole);
                    [word(key), rate].into_iter().chain(rest).collect()
                }
                "slot" => {
                    let kind = number("distribution").and_then(|_| word("distribution"));
                    let times = [
                        time("distribution"),
                        time("jitter"),
                        time("min-delay"),
                        time("max-delay"),
                    ];
                    let most = [unless_zero("packets"), unless_zero("bytes")]
                        .into_iter()
                        .flatten();
                    [word(key), kind].into_iter().chain(times).chain(most).collect()
                }
                other => {
                    return Some(Err(NetemError(format!(
                        "tc says `{other}` of a netem, which perturb does not know"
                    ))));
                }
            };
            options.extend(words.into_iter().flatten());
        }
    }
    Some(Ok(Discipline {
        kind,
        verb: None,
        namespace: None,
        device: text("dev"),
        handle: text("handle"),
        parent: text("parent"),
        options,
        shown: true,
    }))
}

/// The disciplines that stand when all commands are done, and the netems among them.
fn standing<'t>(all: &[Discipline<'t>]) -> Result<Vec<(Discipline<'t>, Option<Netem>)>, NetemError> {
    let mut standing: Vec<(Discipline<'t>, Option<Netem>)> = Vec::new();
    for one in all {
        let options: Vec<&str> = one.options.iter().map(String::as_str).collect();
        let given = one.kind == "netem" && one.verb != Some(Verb::Delete);
        let netem = given.then(|| words::read(&options)).transpose()?;
        let same = |(other, _): &(Discipline<'t>, _)| {
            (other.namespace, other.device, other.parent) == (one.namespace, one.device, one.parent)
        };
        let at = one.verb.and_then(|_| standing.iter().position(same));
        match (one.verb, at.and_then(|at| standing.get_mut(at))) {
            (Some(Verb::Add), Some((_, Some(_)))) if netem.is_some() => {
                let device = one.device.unwrap_or("the interface");
                return Err(NetemError(format!(
                    "{device} has a netem there when `tc qdisc add` adds one, which tc refuses: write `replace`"
                )));
            }
            (Some(Verb::Change), Some((other, before))) => {
                // `replace` with another handle makes a new one.
                let keeps = one.handle.is_none_or(|handle| other.handle == Some(handle));
                let handle = one.handle.or(other.handle);
                *other = one.clone();
                other.handle = handle;
                *before = match (netem, before.take()) {
                    (Some(netem), Some(before)) if keeps => Some(netem.over(before)),
                    (netem, _) => netem,
                };
            }
            // What hangs on the root goes with it.
            (Some(Verb::Delete), _) => standing.retain(|both| {
                let (other, _) = both;
                let here = (other.namespace, other.device) == (one.namespace, one.device);
                !(same(both) || here && one.parent.is_none())
            }),
            _ => standing.push((one.clone(), netem)),
        }
    }
    Ok(standing)
}

/// Netems among other disciplines.
fn gather(all: &[Discipline<'_>], redirects: Vec<(String, String)>) -> Result<Sources, NetemError> {
    let mut sources = Sources {
        netems: Vec::new(),
        others: Vec::new(),
        redirects,
    };
    let all = standing(all)?;
    let mut spaces = all
        .iter()
        .filter_map(|(one, netem)| netem.as_ref().and(Some(one.namespace)));
    let first = spaces.next();
    if spaces.any(|space| Some(space) != first) {
        return Err(NetemError(
            "there are netems in several network namespaces: give the commands of one; a profile is one network"
                .to_owned(),
        ));
    }
    // Whether `below` hangs on the netem.
    let hangs = |below: &Discipline<'_>, netem: &Discipline<'_>| {
        let major = below.parent.and_then(|parent| parent.split(':').next());
        let handle = netem.handle.and_then(|handle| handle.split(':').next());
        major.is_some() && major == handle && below.device == netem.device
    };
    for (one, netem) in &all {
        let below = all
            .iter()
            .any(|(other, netem)| netem.is_some() && hangs(one, other));
        let Some(netem) = netem else {
            if !(one.kind.ends_with("fifo") && below) {
                sources.others.push(Other {
                    kind: one.kind.to_owned(),
                    device: one.device.map(str::to_owned),
                });
            }
            continue;
        };
        sources.netems.push(Found {
            netem: netem.clone(),
            device: one.device.map(str::to_owned),
            way: Direction::Egress,
            matching: Match::default(),
            parent: one.parent.filter(|_| !below).map(str::to_owned),
            in_order: all
                .iter()
                .any(|(other, _)| other.kind.ends_with("fifo") && hangs(other, one)),
            shapeless: one.shown,
        });
    }
    Ok(sources)
}

/// tcconfig's: by interface, direction and filter.
fn tcconfig(devices: &Map<String, Value>) -> Result<Sources, NetemError> {
    let mut netems = Vec::new();
    for (device, directions) in devices {
        for (key, way) in [("outgoing", Direction::Egress), ("incoming", Direction::Ingress)] {
            let Some(filters) = directions.get(key).and_then(Value::as_object) else {
                continue;
            };
            for (filter, given) in filters {
                let Some(given) = given.as_object() else { continue };
                netems.push(Found {
                    netem: of_tcconfig(given)?,
                    device: Some(device.clone()),
                    way,
                    matching: matching(filter, way)?,
                    parent: None,
                    in_order: false,
                    shapeless: false,
                });
            }
        }
    }
    Ok(Sources {
        netems,
        others: Vec::new(),
        redirects: Vec::new(),
    })
}

/// tcset's parameters: times are ms where they have no unit, rates bit/s, whose prefixes are of 1000.
fn of_tcconfig(given: &Map<String, Value>) -> Result<Netem, NetemError> {
    let text = |key: &str| match given.get(key)? {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let time = |key: &str| {
        let text = text(key)?;
        let bare = text.parse::<f64>().is_ok();
        Some(if bare { text + "ms" } else { text })
    };
    let mut words = Vec::new();
    let known = [
        "delay",
        "delay-distro",
        "delay-distribution",
        "loss",
        "duplicate",
        "corrupt",
        "reordering",
        "reorder",
        "rate",
        "limit",
        "filter_id",
    ];
    if let Some(other) = given.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(NetemError(format!(
            "tcconfig says `{other}`, which perturb does not know"
        )));
    }
    if let Some(delay) = time("delay") {
        words.extend(["delay".to_owned(), delay]);
        if let Some(jitter) = time("delay-distro") {
            // tcset writes `distribution normal` unless it is told otherwise.
            let shape = text("delay-distribution").unwrap_or_else(|| "normal".to_owned());
            words.extend([jitter, "distribution".to_owned(), shape]);
        }
    }
    let shares = [
        ("loss", "loss"),
        ("duplicate", "duplicate"),
        ("corrupt", "corrupt"),
        ("reordering", "reorder"),
        ("reorder", "reorder"),
    ];
    for (key, word) in shares {
        if let Some(share) = text(key) {
            words.extend([word.to_owned(), share]);
        }
    }
    if let Some(rate) = text("rate") {
        let lower = rate.to_ascii_lowercase();
        let number = ["bit/s", "bps", "bit"]
            .iter()
            .find_map(|unit| lower.strip_suffix(unit))
            .unwrap_or(&lower);
        words.extend(["rate".to_owned(), format!("{}bit", number.replace(' ', ""))]);
    }
    if let Some(limit) = text("limit") {
        words.extend(["limit".to_owned(), limit]);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    words::read(&words)
}

/// `dst-network=192.168.0.10/32, dst-port=8080, protocol=ip`.
fn matching(filter: &str, way: Direction) -> Result<Match, NetemError> {
    let mut matching = Match::default();
    let wrong = |term: &str| NetemError(format!("tcconfig's filter `{term}` is none that perturb knows"));
    for term in filter.split(',').map(str::trim).filter(|term| !term.is_empty()) {
        let (key, value) = term.split_once('=').ok_or_else(|| wrong(term))?;
        let from_here = matches!(way, Direction::Egress);
        // What is sent to the other side comes from there, too.
        let (addresses, ports) = match (key, from_here) {
            ("network" | "dst-network" | "dst-port" | "port", true) | ("src-network" | "src-port", false) => {
                (&mut matching.remote, &mut matching.remote_port)
            }
            _ => (&mut matching.local, &mut matching.local_port),
        };
        match key {
            "protocol" => match value {
                "ip" => matching.family = Some(Family::Ipv4),
                "ipv6" => matching.family = Some(Family::Ipv6),
                "all" => {}
                _ => return Err(wrong(term)),
            },
            "network" | "dst-network" | "src-network" => {
                let prefix = Prefix::parse(value).map_err(|_| wrong(term))?;
                addresses.push(prefix);
            }
            "port" | "dst-port" | "src-port" => {
                let port = value.parse().map_err(|_| wrong(term))?;
                ports.push(PortRange {
                    low: port,
                    high: port,
                });
            }
            _ => return Err(wrong(term)),
        }
    }
    Ok(matching)
}
