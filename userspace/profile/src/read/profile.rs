//! Reads a whole profile: the top keys, the shorthand, and what spans several sections.

use perturb_quantity::Duration;

use crate::diagnostic::{Diagnostics, Problem};
use crate::findings::{Findings, KeyPath};
use crate::groups::Matrix;
use crate::keys;
use crate::matching::Match;
use crate::model::{Class, Limits, Name, Overhead, Profile, Server, ServerId, Treatment};
use crate::read::class::{ServerNames, classes};
use crate::read::groups::{self, Groups, Reading};
use crate::read::server::{knobs, server};
use crate::read::timeline::timeline;
use crate::read::topology;
use crate::read::{self, At, Fields};
use crate::timeline::Timeline;
use crate::yaml::{self, Kind};

/// Reads a profile. On failure every problem is reported, not just the first.
pub fn parse(text: &str) -> Result<Profile, Diagnostics> {
    let reading = &mut Reading {
        tables: &mut |_| None,
        everyone: false,
    };
    parse_with(text, reading)
}

/// The same, with what reads the table of its matrix.
pub(crate) fn parse_with(text: &str, reading: &mut Reading<'_>) -> Result<Profile, Diagnostics> {
    let mut findings = Findings::new(text);
    let tree = yaml::parse(text, &mut findings);
    let profile = tree.and_then(|tree| match tree.kind {
        Kind::Nothing => None,
        _ => document(
            At {
                node: &tree,
                path: &KeyPath::ROOT,
            },
            reading,
            &mut findings,
        ),
    });
    findings.conclude(profile)
}

fn document(at: At<'_>, reading: &mut Reading<'_>, findings: &mut Findings<'_>) -> Option<Profile> {
    let fields = Fields::of(at, &keys::PROFILE, keys::shorthand(), findings)?;
    let version = keys::Bounds {
        min: keys::VERSION,
        max: keys::VERSION,
    };
    fields.require("version", "version: 1", findings, |at, f| at.integer(version, f));

    let overhead = fields.read("overhead", findings, overhead).unwrap_or_default();
    let groups = fields
        .read("groups", findings, groups::groups)
        .unwrap_or_default();
    let ((servers, classes), matrix) = match shorthand_key(&fields) {
        Some(key) => (shorthand(&fields, key, (&groups, reading), findings), None),
        None => longhand(&fields, (&groups, reading), findings),
    };
    let names = || ServerNames::new(servers.iter().map(|(name, _)| name));
    let hosts = fields
        .read("hosts", findings, topology::hosts)
        .unwrap_or_default();
    let topology = fields.read("topology", findings, |at, f| {
        topology::topology(at, &names(), hosts.len(), f)
    });
    let has = |key| fields.node(key).is_some();
    let untouched = classes.is_empty() && !has("classes") && !has("matrix") && topology.is_none();
    let mut profile = Profile {
        name: fields.read("name", findings, read::name),
        description: fields.read("description", findings, |at, f| at.prose(keys::MAX_TEXT, f)),
        seed: fields
            .read("seed", findings, |at, f| at.integer(keys::ANY_U64, f))
            .unwrap_or(1),
        overhead,
        segmentation: fields
            .read("segmentation", findings, read::variant)
            .unwrap_or_default(),
        horizon: fields.read("horizon", findings, |at, f| at.quantity(keys::HORIZON, f)),
        limits: fields.read("limits", findings, limits).unwrap_or_default(),
        servers,
        classes,
        hosts,
        groups,
        matrix,
        topology,
        tcp: fields.read("tcp", findings, topology::tcp).unwrap_or_default(),
        mtu: fields.read("mtu", findings, |at, f| at.quantity(keys::MTU, f)),
        timeline: Timeline::default(),
    };
    // Overhead alone and a lone server are shorthands too: every packet, both ways. Of several servers nobody knows which way.
    if untouched
        && (profile.servers.len() == 1 || profile.servers.is_empty() && overhead != Overhead::default())
    {
        let path: Vec<ServerId> = (0..profile.servers.len()).filter_map(ServerId::new).collect();
        profile.classes = vec![everything(path.clone(), path)?];
    }
    let timeline = fields.read("timeline", findings, |at, f| timeline(at, &mut profile, f));
    profile.timeline = timeline.unwrap_or_default();
    check_sums(&fields, &profile, findings);
    Some(profile)
}

fn overhead(at: At<'_>, findings: &mut Findings<'_>) -> Option<Overhead> {
    let fields = Fields::of(at, &keys::OVERHEAD_SECTION, &[], findings)?;
    let mut side = |key| {
        fields
            .read(key, findings, |at, f| at.quantity(keys::OVERHEAD, f))
            .unwrap_or_default()
    };
    Some(Overhead {
        send: side("send"),
        receive: side("receive"),
        acknowledgments: fields
            .read("acknowledgments", findings, read::variant)
            .unwrap_or_default(),
    })
}

fn limits(at: At<'_>, findings: &mut Findings<'_>) -> Option<Limits> {
    let fields = Fields::of(at, &keys::LIMITS, &[], findings)?;
    let flows = fields.read("flows", findings, |at, f| at.integer(keys::FLOWS, f));
    Some(Limits {
        flows: flows
            .and_then(|flows| u32::try_from(flows).ok())
            .unwrap_or(Limits::DEFAULT_FLOWS),
        held: fields.read("held", findings, |at, f| at.quantity(keys::HELD, f)),
    })
}

/// Servers, and the classes that cross them.
pub(crate) type Network = (Vec<(Name, Server)>, Vec<Class>);

fn shorthand_key(fields: &Fields<'_>) -> Option<&'static str> {
    keys::shorthand()
        .iter()
        .map(|key| key.name)
        .find(|name| fields.node(name).is_some())
}

/// One server each way that everything crosses.
fn shorthand(
    fields: &Fields<'_>,
    key: &'static str,
    groups: (&Groups, &mut Reading<'_>),
    findings: &mut Findings<'_>,
) -> Network {
    for other in ["servers", "classes", "topology", "matrix"] {
        if fields.node(other).is_some() {
            let why = "a server's keys at the top mean that everything crosses that one server";
            fields.report(other, Problem::Excludes { other: key, why }, findings);
        }
    }
    // Whichever of the two stays, what is wrong in it is said now.
    longhand(fields, groups, findings);
    through(&knobs(fields, true, findings))
}

/// A server like this one each way, which everything crosses.
pub(crate) fn through(server: &Server) -> Network {
    let network = || {
        let (outward, inward) = (ServerId::new(0)?, ServerId::new(1)?);
        let servers = vec![
            (Name::new("out")?, server.clone()),
            (Name::new("in")?, server.clone()),
        ];
        Some((servers, vec![everything(vec![outward], vec![inward])?]))
    };
    network().unwrap_or_default()
}

/// The class `all` that everything belongs to.
pub(crate) fn everything(egress: Vec<ServerId>, ingress: Vec<ServerId>) -> Option<Class> {
    Some(Class {
        name: Name::new("all")?,
        matching: Match::default(),
        treatment: Treatment::Emulate {
            egress: Some(egress),
            ingress: Some(ingress),
        },
    })
}

fn longhand(
    fields: &Fields<'_>,
    (groups, reading): (&Groups, &mut Reading<'_>),
    findings: &mut Findings<'_>,
) -> (Network, Option<Matrix>) {
    let limit = perturb_common::abi::MAX_SERVERS as usize;
    let mut servers: Vec<(Name, Server)> = fields
        .read("servers", findings, |at, f| at.named(limit, f, server))
        .unwrap_or_default()
        .into_iter()
        // A server that could not be read keeps its name, so that a path that names it is not wrong as well.
        .map(|(name, server)| (name, server.unwrap_or_default()))
        .collect();
    let written = groups::matrix(fields, groups, servers.len(), reading, findings);
    let names = groups::server_names(&servers, &written);
    let mut classes = fields
        .read("classes", findings, |at, f| classes(at, &names, groups, f))
        .unwrap_or_default();
    groups::check_names_of_pairs(fields, &written, (&servers, &classes), findings);
    servers.extend(written.servers);
    classes.extend(written.classes);
    ((servers, classes), written.matrix)
}

/// What no single section can know: delays along a path, and the tables that all servers share.
fn check_sums(fields: &Fields<'_>, profile: &Profile, findings: &mut Findings<'_>) {
    let horizon = profile.horizon.unwrap_or(keys::MAX_HORIZON);
    let mut too_long: Option<Duration> = None;
    for path in profile.classes.iter().flat_map(Class::paths).flatten() {
        let delay = crate::delay::bounded_delay(profile, path);
        if delay > horizon {
            too_long = too_long.max(Some(delay));
        }
    }
    if let Some(delay) = too_long {
        let (delay, horizon) = (delay.to_string(), horizon.to_string());
        let mut keys = ["matrix", "classes"].into_iter();
        let key = keys.find(|key| fields.node(key).is_some());
        let key = key.unwrap_or("latency");
        fields.report(key, Problem::BeyondHorizon { delay, horizon }, findings);
    }
    let key = if fields.node("servers").is_some() {
        "servers"
    } else {
        "buffer"
    };
    if profile.mtu.is_some() {
        let links = profile.topology.iter().flat_map(|one| one.layout.links());
        let mut all = profile.servers.iter().map(|(_, server)| server).chain(links);
        if all.any(|server| !crate::delay::admits(server, profile.frame())) {
            let why = "a buffer holds less than a packet of that size and its Ethernet header, so none would ever pass";
            fields.unfit(
                "mtu",
                why,
                "make the buffers larger, or the mtu smaller",
                findings,
            );
        }
    }
    let packets: u64 = profile
        .servers
        .iter()
        .filter_map(|(_, server)| server.buffer.packets)
        .map(u64::from)
        .sum();
    if packets > keys::BUFFER_PACKETS.max {
        let why = "all buffers together may count 262144 packets";
        fields.unfit(key, why, "limit some buffers in bytes instead", findings);
    }
    let listed: usize = profile
        .servers
        .iter()
        .map(|(_, server)| server.loss.nth.len())
        .sum();
    if listed > perturb_common::abi::MAX_NTH as usize {
        let why = "all `nth` lists together may have 65536 entries";
        fields.unfit(key, why, "shorten them", findings);
    }
}
