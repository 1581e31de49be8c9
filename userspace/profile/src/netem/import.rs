//! A profile that does what netems do.

use perturb_common::abi::Direction;
use perturb_common::ties::MAX_GAP;

use super::slots;
use super::sources::{self, Found};
use super::{Chance, IN_ORDER, Link, Netem, NetemError, OTHER_RATES};
use crate::keys;
use crate::matching::{Match, PortRange, Prefix};
use crate::model::{
    Class, Correlated, Drift, Framing, GilbertElliott, Jitter, LossStates, Name, Profile, Reorder, Server,
    ServerId, Treatment,
};
use crate::{Duration, Probability};

/// A profile made of netems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The profile.
    pub profile: Profile,
    /// What it does not do, one sentence each.
    pub lost: Vec<String>,
}

/// The profile that does what a text says of netem: see the module. `device` chooses the interface, where there are several.
///
/// # Errors
/// When the text is none of netem's, or has several interfaces, or what it says is out of a profile's range.
pub fn import(text: &str, device: Option<&str>) -> Result<Imported, NetemError> {
    let mut sources = sources::read(text)?;
    // What comes in is redirected to an ifb, which sends it to the netem.
    let incoming = |device: &str| device.starts_with("ifb");
    let from = |ifb: &str| {
        let redirect = sources.redirects.iter().find(|(_, to)| to == ifb);
        redirect.map(|(from, _)| from.as_str())
    };
    sources
        .netems
        .retain(|found| match (found.device.as_deref(), device) {
            (Some(of), Some(device)) if incoming(of) && !incoming(device) => {
                from(of).is_none_or(|from| from == device)
            }
            (Some(of), Some(device)) => of == device,
            _ => true,
        });
    if sources.netems.is_empty() {
        let place = device.map_or(String::new(), |device| format!(" on {device}"));
        return Err(NetemError(format!(
            "there is no netem{place}; write `delay 100ms 10ms`, or what `tc qdisc show` or `tcshow` print"
        )));
    }
    let (mut devices, mut ifbs): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for name in sources.netems.iter().filter_map(|found| found.device.as_deref()) {
        let known = if incoming(name) { &mut ifbs } else { &mut devices };
        if !known.contains(&name) {
            known.push(name);
        }
    }
    if let [first, _, ..] = devices.as_slice() {
        return Err(NetemError(format!(
            "there are netems on {}: choose one by `--device {first}`; a profile is one network",
            devices.join(", ")
        )));
    }
    let mut lost = Vec::new();
    let mine = device.or(devices.first().copied());
    match ifbs.as_slice() {
        [] => {}
        [ifb] if from(ifb).is_some_and(|from| mine.is_none_or(|mine| [from, *ifb].contains(&mine))) => {}
        [ifb] => lost.push(format!(
            "what tc's filters redirect to {ifb}: its netem gets all that comes in here"
        )),
        [first, ..] => {
            return Err(NetemError(format!(
                "there are netems on {}: tc's filters say which of them gets what comes in; leave all out but one, or choose it by `--device {first}`",
                ifbs.join(", ")
            )));
        }
    }
    for other in &sources.others {
        let here = match (other.device.as_deref(), mine) {
            (Some(of), Some(mine)) => of == mine || ifbs.contains(&of),
            _ => true,
        };
        if here && SHAPERS.contains(&other.kind.as_str()) {
            lost.push(format!("what the {} beside the netem does", other.kind));
        }
    }
    let mut classes = sources
        .netems
        .iter()
        .filter_map(|found| Some((found.device.as_deref(), found.parent.as_deref()?)));
    if let Some((device, first)) = classes.next()
        && let Some((_, second)) = classes.find(|(other, _)| *other == device)
    {
        return Err(NetemError(format!(
            "there are netems in tc's classes {first} and {second}, and each packet crosses one of them: give the command or the line of one"
        )));
    }
    for found in &mut sources.netems {
        if found.device.as_deref().is_some_and(incoming) {
            found.way = Direction::Ingress;
        }
    }
    let profile = profile(&sources.netems, &mut lost)?;
    // Whatever is out of range is said as of any profile.
    crate::parse(&profile.to_string())
        .map_err(|errors| NetemError(format!("a profile cannot say this:\n{errors}")))?;
    Ok(Imported { profile, lost })
}

/// Disciplines that do something to packets beside a netem.
const SHAPERS: &[&str] = &[
    "tbf", "htb", "hfsc", "fq_codel", "codel", "cake", "red", "sfq", "pie", "drr",
];

fn profile(netems: &[Found], lost: &mut Vec<String>) -> Result<Profile, NetemError> {
    let mut profile = Profile {
        seed: 1,
        ..Profile::default()
    };
    // By match, the paths each way; what matches everything is the last.
    let mut classes: Vec<(&Match, [Option<Vec<ServerId>>; 2])> = Vec::new();
    for (number, found) in netems.iter().enumerate() {
        let name = match (netems.len(), found.way) {
            (1, _) => "netem".to_owned(),
            (_, Direction::Egress) => format!("netem-{}-out", number + 1),
            (_, Direction::Ingress) => format!("netem-{}-in", number + 1),
        };
        // iproute2 shows a seed of netem's own where none is given.
        if found.netem.seed.is_some() && !found.shapeless {
            lost.push("the `seed`: netem draws otherwise".to_owned());
        }
        let id = ServerId::new(profile.servers.len());
        let (Some(name), Some(id)) = (Name::new(&name), id) else {
            return Err(NetemError(
                "these are more netems than a profile takes".to_owned(),
            ));
        };
        let mut server = server(found, lost);
        let slots = slots::import(&found.netem, &mut server, &mut |what| lost.push(what));
        let behind = slots.map(|slots| (Name::new(&format!("{name}-slots")), slots));
        profile.servers.push((name, server));
        let mut ids = vec![id];
        if let Some((Some(name), slots)) = behind {
            ids.extend(ServerId::new(profile.servers.len()));
            profile.servers.push((name, slots));
        }
        if let Some(parent) = &found.parent {
            lost.push(format!(
                "the filters before tc's class {parent}: all packets cross the netem; give the profile's class a `match`"
            ));
        }
        let known = classes
            .iter()
            .position(|(matching, _)| **matching == found.matching);
        let at = known.unwrap_or_else(|| {
            classes.push((&found.matching, [None, None]));
            classes.len() - 1
        });
        if let Some((_, paths)) = classes.get_mut(at) {
            // One below another.
            paths[found.way as usize].get_or_insert_default().extend(ids);
        }
    }
    // The first match wins: narrow ones first, and what one says of neither direction, the next wider one does.
    classes.sort_by_key(|(matching, _)| std::cmp::Reverse(narrowness(matching)));
    let wider = classes.clone();
    for (number, (matching, paths)) in classes.into_iter().enumerate() {
        let [egress, ingress] = [Direction::Egress as usize, Direction::Ingress as usize].map(|way| {
            let own = paths.get(way).cloned().flatten();
            own.or_else(|| {
                wider
                    .iter()
                    .filter(|(of, _)| covers(of, matching))
                    .find_map(|(_, paths)| paths.get(way)?.clone())
            })
        });
        let name = if matching.is_everything() {
            "all".to_owned()
        } else {
            format!("class-{}", number + 1)
        };
        let rest = wider.iter().enumerate().skip(number + 1);
        for (other, _) in rest.filter(|(_, (of, _))| overlap(of, matching) && !covers(of, matching)) {
            lost.push(format!(
                "which of `class-{}` and `class-{}` gets a packet that both match: here the first one",
                number + 1,
                other + 1
            ));
        }
        profile.classes.extend(Name::new(&name).map(|name| Class {
            name,
            matching: matching.clone(),
            treatment: Treatment::Emulate { egress, ingress },
        }));
    }
    Ok(profile)
}

/// What a filter of tcconfig asks of a packet's fields: ranges of numbers; none: nothing.
fn conditions(matching: &Match) -> [Vec<(u128, u128)>; 5] {
    let prefixes = |list: &[Prefix]| list.iter().map(Prefix::range).collect();
    let ports = |list: &[PortRange]| {
        list.iter()
            .map(|ports| (ports.low.into(), ports.high.into()))
            .collect()
    };
    let family = matching.family.map(|family| (family as u128, family as u128));
    [
        prefixes(&matching.local),
        prefixes(&matching.remote),
        ports(&matching.local_port),
        ports(&matching.remote_port),
        family.into_iter().collect(),
    ]
}

/// Of two, one of which covers the other, the covered one has more.
fn narrowness(matching: &Match) -> (usize, u32) {
    let asked = conditions(matching);
    let prefixes = matching.local.iter().chain(&matching.remote);
    (
        asked.iter().filter(|ranges| !ranges.is_empty()).count(),
        prefixes.map(|prefix| u32::from(prefix.length())).sum(),
    )
}

/// Whether `wide` matches all that `narrow` matches.
fn covers(wide: &Match, narrow: &Match) -> bool {
    let within = |(low, high): &(u128, u128), of: &[(u128, u128)]| {
        of.iter().any(|(least, most)| least <= low && high <= most)
    };
    let (wide, narrow) = (conditions(wide), conditions(narrow));
    wide.iter().zip(&narrow).all(|(wide, narrow)| {
        wide.is_empty() || !narrow.is_empty() && narrow.iter().all(|range| within(range, wide))
    })
}

/// Whether some packet matches both.
fn overlap(one: &Match, other: &Match) -> bool {
    let meet = |(low, high): &(u128, u128), of: &[(u128, u128)]| {
        of.iter().any(|(least, most)| low <= most && least <= high)
    };
    let (one, other) = (conditions(one), conditions(other));
    one.iter()
        .zip(&other)
        .all(|(one, other)| one.is_empty() || other.is_empty() || one.iter().any(|range| meet(range, other)))
}

/// The server that does what a netem does.
fn server(found: &Found, lost: &mut Vec<String>) -> Server {
    let netem = &found.netem;
    let mut lose = |what: String| lost.push(what);
    let mut server = Server {
        latency: netem.delay,
        ..Server::default()
    };
    if netem.jitter > Duration::ZERO {
        if found.shapeless {
            lose("the distribution of the jitter, which tc does not show: it is uniform here".to_owned());
        }
        if found.in_order && netem.rate.is_none() {
            lose(
                "the FIFO below the netem: since Linux 3.3 it does not keep the order; a rate does"
                    .to_owned(),
            );
        }
        server.jitter = Some(Jitter {
            distribution: slots::shape(netem.distribution.as_deref()),
            scale: netem.jitter,
            reorder: netem.rate.is_none(),
            drift: Some(tied("delay", netem.correlation, &mut lose))
                .filter(|&correlation| correlation > Probability::ZERO)
                .map(Drift::Packets),
        });
    }
    match netem.loss {
        super::Loss::Random(chance) => {
            server.loss.random = chance.share;
            server.loss.correlation = tied("loss", chance.correlation, &mut lose);
        }
        super::Loss::Gilbert([to_bad, to_good, bad_loss, good_loss]) => {
            server.loss.burst = Some(GilbertElliott {
                to_bad,
                to_good,
                bad_loss,
                good_loss,
            });
        }
        super::Loss::State([p13, p31, p32, p23, p14]) => {
            let most = |other: Probability| {
                Probability::from_billionths(Probability::ONE.billionths() - other.billionths())
            };
            for (one, name, other, first) in [(p13, "p13", p14, "p14"), (p31, "p31", p32, "p32")] {
                if one > most(other) {
                    lose(format!(
                        "the {name} of {one} beside a {first} of {other}: it is {} here",
                        most(other)
                    ));
                }
            }
            server.loss.states = Some(LossStates {
                p13: p13.min(most(p14)),
                p31: p31.min(most(p32)),
                p32,
                p23,
                p14,
            });
        }
    }
    server.loss.ecn = netem.ecn;
    let in_order = netem.jitter > Duration::ZERO && netem.rate == Some(Link::plain(IN_ORDER));
    let mut correlated = |what, Chance { share, correlation }| Correlated {
        probability: share,
        correlation: tied(what, correlation, &mut lose),
    };
    server.duplicate = correlated("duplicates", netem.duplicate);
    server.corrupt = correlated("damage", netem.corrupt);
    if !netem.reorder.is_none() {
        server.reorder = Some(Reorder {
            chance: correlated("reordering", netem.reorder),
            gap: netem.gap.clamp(1, MAX_GAP),
        });
        if netem.gap > MAX_GAP {
            lose(format!("the `gap` of {}: it is {MAX_GAP} here", netem.gap));
        }
        if netem.rate.is_some() && !in_order {
            lose(
                "that what goes ahead passes the packets that wait for the `rate`: here it waits with them"
                    .to_owned(),
            );
        }
    }
    if netem.is_correlated() {
        lose(OTHER_RATES.to_owned());
    }
    match netem.rate.filter(|_| !in_order) {
        Some(link) => rate(&mut server, netem, link, &mut lose),
        None if netem.slot.is_some() || [Netem::LIMIT, Netem::UNLIMITED].contains(&netem.limit) => {}
        None => lose(format!(
            "the `limit` of {}: without a rate nothing queues, and all packets under way are held",
            netem.limit
        )),
    }
    server
}

/// The rate, and what may wait for it.
fn rate(server: &mut Server, netem: &Netem, link: Link, lose: &mut impl FnMut(String)) {
    server.bandwidth = Some(link.rate);
    server.framing = Framing::from(link);
    if link
        != (Link {
            rate: link.rate,
            ..Link::from(server.framing)
        })
    {
        lose(format!(
            "overheads of `{link}` beyond those of {} bytes that a packet and a cell may have here",
            keys::FRAMING_BYTES.max
        ));
    }
    if netem.limit == Netem::UNLIMITED {
        return;
    }
    let (limit, way) = (u64::from(netem.limit), netem.under_way());
    if way >= limit {
        let delay = netem.delay;
        lose(format!(
            "the `limit` of {limit}: netem passes no more full frames than that in {delay}, and {way} go into it at this rate"
        ));
    } else if way > 0 && netem.limit != Netem::LIMIT {
        lose(format!(
            "small packets under way in the `limit` of {limit}: the buffer is what {way} full frames under way leave of it"
        ));
    }
    let waiting = if way < limit { limit - way } else { limit };
    // What waits for longer than a horizon can be is dropped.
    let rest = HORIZON.nanos().saturating_sub(netem.longest().nanos());
    let most = (rest / link.rate.time_of(link.frame()).nanos().max(1)).saturating_sub(1);
    let packets = waiting
        .min(most)
        .clamp(1, perturb_common::abi::MAX_RING_SLOTS.into());
    server.buffer.packets = u32::try_from(packets).ok();
    if packets < waiting {
        lose(format!(
            "packets of the `limit` of {limit} that would wait for longer than a minute"
        ));
    }
}

/// The longest that a packet is held.
pub(super) const HORIZON: Duration = Duration::from_millis(60_000);

impl From<Link> for Framing {
    fn from(link: Link) -> Self {
        let header = Profile::ETHERNET_HEADER as i32;
        let without_ethernet = link.packet_overhead < 0;
        let overhead = link.packet_overhead + if without_ethernet { header } else { 0 };
        let most = keys::FRAMING_BYTES.max as u32;
        let within = |bytes: i32| u32::try_from(bytes).unwrap_or(0).min(most);
        let cells = link.cell_size > 0;
        Self {
            packet_overhead: within(overhead),
            without_ethernet,
            cell_size: link.cell_size.min(most),
            cell_overhead: if cells { within(link.cell_overhead) } else { 0 },
        }
    }
}

/// A correlation, at most what a profile takes.
fn tied(what: &str, correlation: Probability, lose: &mut impl FnMut(String)) -> Probability {
    let most = keys::CORRELATION.max;
    if correlation > most {
        lose(format!(
            "the {what}'s correlation of {correlation}: it is {most} here"
        ));
    }
    correlation.min(most)
}
