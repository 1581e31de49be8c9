//! Reads a timeline and a trace.

use std::collections::HashMap;

use perturb_quantity::{Duration, Quantity, Rate};

use crate::diagnostic::Problem;
use crate::findings::Findings;
use crate::keys::{self, Bounds};
use crate::matching::Prefix;
use crate::model::{Name, Overhead, Profile, Server, ServerId, Treatment, Volume};
use crate::read::class::ServerNames;
use crate::read::queue::AS_TIME;
use crate::read::server::volume;
use crate::read::trace::start;
use crate::read::{self, At, Fields};
use crate::timeline::{Change, Down, Flap, Given, Random, Shape, Step, Subject, Timeline};
use crate::topology::{Layout, MAX_HOSTS};
use crate::yaml::{Kind, Place};

/// The keys of a step that say what changes.
const SUBJECTS: [&str; 5] = ["server", "class", "link", "level", "partition"];
/// Those that say to what.
const VALUES: [&str; 6] = ["latency", "bandwidth", "gap", "buffer", "loss", "jitter"];

/// The timeline of `profile`, to which classes that a step names add servers.
pub(crate) fn timeline(at: At<'_>, profile: &mut Profile, findings: &mut Findings<'_>) -> Option<Timeline> {
    let fields = Fields::of(at, &keys::TIMELINE, &[], findings)?;
    let mut reader = Reader {
        profile,
        of_classes: HashMap::new(),
    };
    let start = fields.read("start", findings, start).unwrap_or_default();
    let repeat = fields.read("repeat", findings, |at, f| at.quantity(keys::PERIOD, f));
    let end = fields.read("end", findings, |at, f| at.quantity(keys::PERIOD, f));
    if fields.has("repeat") && fields.has("end") {
        let why = "what repeats has no end";
        fields.report("end", Problem::Excludes { other: "repeat", why }, findings);
    }
    let before = findings.len();
    let mut places = Vec::new();
    let steps = fields.read("steps", findings, |at, f| {
        at.list((1, keys::STEPS), f, |at, f| {
            let step = reader.step(at, f)?;
            places.push(at.node.place);
            Some(step)
        })
    });
    let timeline = Timeline {
        start,
        repeat,
        end,
        steps: steps.unwrap_or_default(),
    };
    if findings.len() == before
        && let Err(conflict) = crate::timeline::lanes::check(profile, &timeline)
    {
        let place = places.get(conflict.step).copied().unwrap_or(at.node.place);
        // A brace is not the offending text.
        let place = Place {
            end: place.start,
            ..place
        };
        let (path, key) = (at.path.key("steps"), conflict.step);
        let line = |step: usize| format!("line {}", places.get(step).map_or(0, |place| place.line));
        let (why, remedy) = (conflict.why.said(line), conflict.why.remedy());
        findings.report(place, path.index(key), Problem::Step { why, remedy });
    }
    Some(timeline)
}

struct Reader<'p> {
    profile: &'p mut Profile,
    /// The servers made for steps of classes.
    of_classes: HashMap<usize, ServerId>,
}

impl Reader<'_> {
    fn step(&mut self, at: At<'_>, findings: &mut Findings<'_>) -> Option<Step> {
        let fields = Fields::of(at, &keys::STEP, &[], findings)?;
        let period = |at: At<'_>, f: &mut Findings<'_>| at.quantity(keys::PERIOD, f);
        let change = change(&fields, findings);
        let partition = fields.has("partition");
        let subject = self.subject(&fields, findings);
        if fields.has("bandwidth") && subject.as_ref().is_some_and(|subject| self.counts_bytes(subject)) {
            let why =
                "a threshold of `queue` or `ecn` is in bytes, hence of one rate, and the step changes that";
            fields.report_whole(Problem::Unfit { why, remedy: AS_TIME }, findings);
        }
        let flap = fields.read("flap", findings, flap);
        let down = fields.read("down", findings, period);
        let lasts = fields.read("for", findings, period);
        let every = fields.read("every", findings, |at, f| {
            given(at, Duration::ZERO, keys::PERIOD, f)
        });
        let over = fields.read("over", findings, period);
        let mut exclude = |key: &'static str, others: &[&'static str], why: &'static str| {
            for &other in others
                .iter()
                .filter(|&&other| fields.has(key) && fields.has(other))
            {
                fields.report(key, Problem::Excludes { other, why }, findings);
            }
        };
        exclude("down", &VALUES, "while nothing passes, no value shows");
        exclude(
            "down",
            &["overhead", "partition", "flap"],
            "they say themselves what is down, and when",
        );
        exclude("for", &["down", "flap"], "both say how long it lasts");
        exclude("every", &["flap"], "both say when it comes again");
        exclude(
            "over",
            &["down", "flap", "partition", "overhead"],
            "only a value moves evenly to another",
        );
        exclude("partition", &VALUES, "a partition has no values");
        exclude("overhead", &SUBJECTS, "the overhead is the host's");
        exclude("overhead", &VALUES, "the overhead is the host's; write two steps");
        let dead = fields.has("down") || (fields.has("flap") && change == Change::default());
        let holds = fields.read("hold", findings, read::flag).unwrap_or(false);
        if fields.has("hold") && !dead {
            let why = "it says what becomes of packets meanwhile";
            fields.needs("hold", "down", why, findings);
        }
        if !dead && !partition && change == Change::default() && !VALUES.iter().any(|key| fields.has(key)) {
            let (key, example) = ("latency", "latency: 50ms, another value or `down: 1s`");
            fields.report_whole(Problem::MissingKey { key, example }, findings);
        }
        if fields.has("times") && every.is_none() && flap.is_none() {
            fields.needs("times", "every", "it counts how often the step comes", findings);
        }
        if partition && flap.is_none() && !fields.has("for") {
            let why = "it says how long they are parted";
            fields.needs("partition", "for", why, findings);
        }
        let lasts = down.or(lasts);
        if let (Some(lasts), Some(Given::Fixed(every))) = (lasts, &every)
            && lasts > *every
        {
            let why = "it lasts longer than until it comes again";
            fields.unfit("every", why, "make it longer, or the step shorter", findings);
        }
        if let (Some(over), Some(longest)) = (over, lasts.or(fixed(every.as_ref())))
            && over > longest
        {
            let why = "it takes longer than the step lasts";
            fields.unfit("over", why, "make it shorter", findings);
        }
        Some(Step {
            at: fields
                .read("at", findings, |at, f| at.quantity(keys::INSTANT, f))
                .unwrap_or_default(),
            every,
            times: fields.read("times", findings, |at, f| at.integer(keys::TIMES, f)),
            lasts,
            over: over.unwrap_or_default(),
            flap,
            subject: subject?,
            change: Change {
                down: dead.then_some(if holds { Down::Hold } else { Down::Drop }),
                ..change
            },
        })
    }

    fn subject(&mut self, fields: &Fields<'_>, findings: &mut Findings<'_>) -> Option<Subject> {
        let mut given = SUBJECTS.into_iter().filter(|key| fields.has(key));
        let Some(key) = given.next() else {
            if fields.has("overhead") {
                return Some(Subject::Overhead);
            }
            // Where the keys of a server stand at the top, both directions are alike.
            let names = || self.profile.servers.iter().map(|(name, _)| name.as_str());
            if names().eq(["out", "in"]) {
                return Some(Subject::Servers((0..2).filter_map(ServerId::new).collect()));
            }
            let example = "server: NAME, class, link, level, partition or overhead";
            fields.report_whole(
                Problem::MissingKey {
                    key: "server",
                    example,
                },
                findings,
            );
            return None;
        };
        if let Some(other) = given.next() {
            let why = "a step changes one thing; write two";
            fields.report(other, Problem::Excludes { other: key, why }, findings);
        }
        if ["link", "level", "partition"].contains(&key) && self.profile.topology.is_none() {
            fields.needs(key, "topology", "only a topology has it", findings);
            return None;
        }
        fields.read(key, findings, |at, f| match key {
            "server" => self.servers(at, f),
            "class" => self.classes(at, f),
            "link" => match at.node.kind {
                Kind::Scalar(ref text) if text == "all" => Some(Subject::Links(Vec::new())),
                _ => at.one_or_more(MAX_HOSTS, f, read::name).map(Subject::Links),
            },
            "level" => self.level(at, f),
            _ => self.partition(at, f),
        })
    }

    /// Whether what changes has a threshold in bytes.
    fn counts_bytes(&self, subject: &Subject) -> bool {
        let law =
            |server: &Server| server.queue.counts_bytes() || matches!(server.ecn, Some(Volume::Bytes(_)));
        match subject {
            Subject::Servers(ids) => ids
                .iter()
                .any(|&id| self.profile.server(id).is_some_and(|(_, server)| law(server))),
            // A partition has a server of its own.
            Subject::Overhead | Subject::Partition(_) => false,
            Subject::Level(level) => self
                .profile
                .topology
                .as_ref()
                .and_then(|topology| topology.layout.links().get(level.checked_sub(1)?))
                .is_some_and(law),
            _ => self
                .profile
                .topology
                .as_ref()
                .is_some_and(|topology| topology.layout.links().iter().any(law)),
        }
    }

    fn servers(&self, at: At<'_>, findings: &mut Findings<'_>) -> Option<Subject> {
        let names = ServerNames::new(self.profile.servers.iter().map(|(name, _)| name));
        let servers = at.one_or_more(keys::STEPS, findings, |at, f| {
            let id = names.find(at, f)?;
            if self
                .profile
                .server(id)
                .is_some_and(|(_, server)| server.trace.is_some())
            {
                let why = "this server plays a trace";
                at.unfit(why, "let a second server on the same paths take the steps", f);
            }
            Some(id)
        });
        servers.map(Subject::Servers)
    }

    fn classes(&mut self, at: At<'_>, findings: &mut Findings<'_>) -> Option<Subject> {
        let numbers = at.one_or_more(keys::STEPS, findings, |at, f| {
            let text = at.text("the name of a class", f)?;
            let found = self
                .profile
                .classes
                .iter()
                .position(|class| class.name.as_str() == text);
            if found.is_none() {
                let names: Vec<&str> = self.profile.classes.iter().map(|one| one.name.as_str()).collect();
                at.report(unknown("a class", text, &names), f);
            }
            found
        })?;
        let mut servers = Vec::new();
        for number in numbers {
            match self.of_class(number) {
                Ok(id) => servers.push(id),
                Err(why) => {
                    at.unfit(why, "change its servers instead", findings);
                    return None;
                }
            }
        }
        Some(Subject::Servers(servers))
    }

    /// The server before all others that the packets of a class cross.
    fn of_class(&mut self, number: usize) -> Result<ServerId, &'static str> {
        if let Some(&id) = self.of_classes.get(&number) {
            return Ok(id);
        }
        let servers = &mut self.profile.servers;
        let class = self
            .profile
            .classes
            .get_mut(number)
            .ok_or("there is no such class")?;
        let Treatment::Emulate { egress, ingress } = &mut class.treatment else {
            return Err("its packets bypass the emulation");
        };
        let paths = || [&*egress, &*ingress].into_iter().flatten();
        if paths().any(|path| path.len() >= perturb_common::abi::MAX_PATH_SERVERS) {
            return Err("its paths have as many servers as a path can");
        }
        let name = Name::new(&format!("{}-step", class.name))
            .filter(|name| servers.iter().all(|(other, _)| other != name))
            .ok_or("the name of the class with `-step` behind it is too long, or a server's")?;
        let id = ServerId::new(servers.len()).ok_or("there are too many servers")?;
        servers.push((name, Server::default()));
        for path in [egress, ingress].into_iter().flatten() {
            path.insert(0, id);
        }
        self.of_classes.insert(number, id);
        Ok(id)
    }

    fn level(&self, at: At<'_>, findings: &mut Findings<'_>) -> Option<Subject> {
        let level = usize::try_from(at.integer(keys::LEVEL_NUMBER, findings)?).ok()?;
        let layout = &self.profile.topology.as_ref()?.layout;
        if !matches!(layout, Layout::Tree { levels, .. } if level <= levels.len()) {
            let why = "the topology has no such level";
            at.unfit(why, "use one of a tree's, or `link: all`", findings);
            return None;
        }
        Some(Subject::Level(level))
    }

    fn partition(&self, at: At<'_>, findings: &mut Findings<'_>) -> Option<Subject> {
        let mut seen = Vec::new();
        let groups = at.list((2, keys::GROUPS), findings, |at, f| {
            at.list((1, MAX_HOSTS), f, |at, f| {
                let text = at.text("the name of a host", f)?;
                let host = rank(&self.profile.hosts, text);
                let names =
                    || -> Vec<&str> { self.profile.hosts.iter().map(|(name, _)| name.as_str()).collect() };
                match host {
                    None => at.report(unknown("a host", text, &names()), f),
                    Some(host) if seen.contains(&host) => at.report(Problem::Repeated, f),
                    Some(host) => seen.push(host),
                }
                host
            })
        })?;
        Some(Subject::Partition(groups))
    }
}

/// A host's place in the order of ranks: by its name, or `h1`, `h2` and so on.
fn rank(hosts: &[(Name, Vec<Prefix>)], text: &str) -> Option<usize> {
    let named = hosts.iter().position(|(name, _)| name.as_str() == text);
    let numbered = || {
        let number = text.strip_prefix('h')?.parse::<usize>().ok()?;
        let places = if hosts.is_empty() { MAX_HOSTS } else { hosts.len() };
        (1..=places).contains(&number).then(|| number - 1)
    };
    named.or_else(numbered)
}

fn unknown(what: &'static str, text: &str, names: &[&str]) -> Problem {
    Problem::UnknownName {
        what,
        suggestion: perturb_quantity::closest(text, names.iter().copied()).map(str::to_owned),
        known: names.iter().take(20).map(|&name| name.to_owned()).collect(),
    }
}

fn change(fields: &Fields<'_>, findings: &mut Findings<'_>) -> Change {
    Change {
        gap: fields.read("gap", findings, |at, f| given(at, Duration::ZERO, keys::GAP, f)),
        bandwidth: fields.read("bandwidth", findings, |at, f| {
            given(at, Rate::from_bits_per_second(0), keys::BANDWIDTH, f)
        }),
        latency: fields.read("latency", findings, |at, f| {
            given(at, Duration::ZERO, keys::LATENCY, f)
        }),
        buffer: fields.read("buffer", findings, |at, f| {
            volume(at, (keys::BUFFER_BYTES, keys::BUFFER_DELAY), f)
        }),
        loss: fields.read("loss", findings, |at, f| at.quantity(keys::SHARE, f)),
        jitter: fields.read("jitter", findings, |at, f| at.quantity(keys::SCALE, f)),
        overhead: fields.read("overhead", findings, |at, f| {
            let fields = Fields::of(at, &keys::OVERHEAD_CHANGE, &[], f)?;
            let mut side =
                |key, example| fields.require(key, example, f, |at, f| at.quantity(keys::OVERHEAD, f));
            let (send, receive) = (side("send", "send: 50us"), side("receive", "receive: 50us"));
            Some(Overhead {
                send: send?,
                receive: receive?,
                ..Overhead::default()
            })
        }),
        down: None,
    }
}

fn flap(at: At<'_>, findings: &mut Findings<'_>) -> Option<Flap> {
    let fields = Fields::of(at, &keys::FLAP, &[], findings)?;
    let dwell = |at: At<'_>, f: &mut Findings<'_>| given(at, Duration::ZERO, keys::PERIOD, f);
    let up = fields.require("up", "up: 5s", findings, dwell);
    let down = fields.require("down", "down: 200ms", findings, dwell);
    Some(Flap { up: up?, down: down? })
}

/// A value, or how it is drawn.
fn given<Q: Quantity + std::fmt::Display>(
    at: At<'_>,
    zero: Q,
    bounds: Bounds<Q>,
    findings: &mut Findings<'_>,
) -> Option<Given<Q>> {
    if !matches!(at.node.kind, Kind::Map(_)) {
        return at.quantity(bounds, findings).map(Given::Fixed);
    }
    // Both have the same keys.
    let fields = Fields::of(at, &keys::RANDOM_DURATION, &[], findings)?;
    let shape = fields.read("distribution", findings, read::variant);
    let shape = if fields.has("distribution") {
        shape?
    } else {
        Shape::Uniform
    };
    let mean = fields.require("mean", "mean: 50ms", findings, |at, f| at.quantity(bounds, f));
    // The width may be below the smallest value.
    let width = Bounds {
        min: zero,
        max: bounds.max,
    };
    let scale = if shape == Shape::Exponential {
        if fields.has("scale") {
            let why = "the mean says all of an exponential distribution";
            fields.unfit("scale", why, "remove it", findings);
        }
        mean
    } else {
        fields.require("scale", "scale: 10ms", findings, |at, f| at.quantity(width, f))
    };
    Some(Given::Random(Random {
        shape,
        mean: mean?,
        scale: scale?,
    }))
}

fn fixed(given: Option<&Given<Duration>>) -> Option<Duration> {
    match given {
        Some(&Given::Fixed(value)) => Some(value),
        _ => None,
    }
}
