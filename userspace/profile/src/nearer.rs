//! Latency that something else already takes: a tunnel to a host on another machine. It comes off the latencies of that host's paths.
//!
//! A pair's share comes off the last servers of its path first, so that packets still reach what they share with others as early as
//! they can. A server that others cross, too, keeps what the pair with the longest share leaves of its latency; the others have the
//! rest of it behind, at a server that nothing occupies and nobody waits for.

use std::collections::BTreeMap;

use perturb_common::abi::{MAX_PATH_SERVERS, MAX_SERVERS};
use perturb_quantity::Duration;

use crate::matching::Prefix;
use crate::model::{Class, Name, Profile, Server, ServerId, Treatment};

/// Why latency cannot come off a profile's paths.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NearerError {
    /// A path that is no pair's.
    #[error(
        "class `{class}` is not of one pair of hosts, so what the tunnels take cannot come off its latency; leave it to a `topology`, \
         or give it `source` and `destination`"
    )]
    NoPair {
        /// The class.
        class: Name,
    },
    /// Its latency is less.
    #[error(
        "class `{class}`: its path's latency is {latency}, and the tunnels take {trip} of their own; raise the latency, or have hosts on \
         a nearer machine{}", if *.varies { " (latencies that change do not count here, nor what jitter may take of them, nor those of servers with `reorder`)" } else { "" }
    )]
    TooNear {
        /// The class.
        class: Name,
        /// Of its path, as far as it stays.
        latency: Duration,
        /// What has to come off.
        trip: Duration,
        /// Whether a server of the path has a latency that does not stay.
        varies: bool,
    },
    /// There is no room for a server behind.
    #[error(
        "class `{class}`: what the tunnels leave of the latencies is more than {MAX_PATH_SERVERS} servers on a path, or {MAX_SERVERS} in all"
    )]
    TooMany {
        /// The class.
        class: Name,
    },
}

/// `profile`, with its topology written out, less what the ways to hosts already take.
///
/// # Errors
/// If a path has less latency, or is no pair's.
pub fn nearer(profile: &Profile, trips: &[(Vec<Prefix>, Duration)]) -> Result<Profile, NearerError> {
    if trips.iter().all(|(_, trip)| *trip == Duration::ZERO) {
        return Ok(profile.clone());
    }
    let mut taken = Vec::with_capacity(profile.classes.len());
    let mut most: BTreeMap<ServerId, u64> = BTreeMap::new();
    for class in &profile.classes {
        let taken_here = take(profile, class, trips)?;
        for (id, nanos) in path(class).iter().zip(&taken_here) {
            let most = most.entry(*id).or_default();
            *most = (*most).max(*nanos);
        }
        taken.push(taken_here);
    }
    let mut nearer = profile.clone();
    for (id, nanos) in &most {
        if let Some((_, server)) = nearer.servers.get_mut(id.index()) {
            server.latency = Duration::from_nanos(server.latency.nanos() - nanos);
        }
    }
    let mut rests = Rests::default();
    for (index, taken_here) in taken.iter().enumerate() {
        let Some(class) = profile.classes.get(index) else {
            continue;
        };
        let mut laid = Vec::new();
        for (&id, nanos) in path(class).iter().zip(taken_here) {
            laid.push(id);
            let rest = most.get(&id).copied().unwrap_or(0) - nanos;
            if rest > 0 {
                laid.push(rests.server(&mut nearer, rest).ok_or(NearerError::TooMany {
                    class: class.name.clone(),
                })?);
            }
        }
        if laid.len() > MAX_PATH_SERVERS {
            return Err(NearerError::TooMany {
                class: class.name.clone(),
            });
        }
        if let Some(Class {
            treatment: Treatment::Emulate {
                egress: Some(egress), ..
            },
            ..
        }) = nearer.classes.get_mut(index)
        {
            *egress = laid;
        }
    }
    Ok(nearer)
}

/// What a class's senders cross.
fn path(class: &Class) -> &[ServerId] {
    class.paths()[0].unwrap_or_default()
}

/// What comes off each server of a class's path, ns.
fn take(
    profile: &Profile,
    class: &Class,
    trips: &[(Vec<Prefix>, Duration)],
) -> Result<Vec<u64>, NearerError> {
    let path = path(class);
    let mut taken = vec![0; path.len()];
    let [_, ingress] = class.paths();
    if path.is_empty() && ingress.is_none_or(<[_]>::is_empty) {
        return Ok(taken);
    }
    let host = |prefixes: &[Prefix]| {
        let of = |own: &[Prefix]| !prefixes.is_empty() && prefixes.iter().all(|one| own.contains(one));
        trips.iter().find(|(own, _)| of(own)).map(|(_, trip)| *trip)
    };
    let pair = host(&class.matching.source).zip(host(&class.matching.destination));
    let Some((from, to)) = pair.filter(|_| ingress.is_none_or(<[_]>::is_empty)) else {
        return Err(NearerError::NoPair {
            class: class.name.clone(),
        });
    };
    let trip = from.saturating_add(to);
    let (mut left, mut latency, mut varies) = (trip.nanos(), Duration::ZERO, false);
    for (&id, taken) in path.iter().zip(&mut taken).rev() {
        let Some((_, server)) = profile.server(id) else {
            continue;
        };
        let stays = stays(profile, id, server);
        varies |= stays < server.latency;
        latency = latency.saturating_add(stays);
        *taken = left.min(stays.nanos());
        left -= *taken;
    }
    if left > 0 {
        return Err(NearerError::TooNear {
            class: class.name.clone(),
            latency,
            trip,
            varies,
        });
    }
    Ok(taken)
}

/// What each packet has of a server's latency, at least: jitter must not fall below zero for what came off, and whoever goes ahead has
/// none of it.
fn stays(profile: &Profile, id: ServerId, server: &Server) -> Duration {
    if profile.changes(id) || server.reorder.is_some() {
        return Duration::ZERO;
    }
    let jitter = server.jitter.as_ref();
    let reach = jitter.map_or(0, |jitter| jitter.distribution.longest(jitter.scale).nanos());
    Duration::from_nanos(server.latency.nanos().saturating_sub(reach))
}

/// Servers that only have a latency, by its ns.
#[derive(Default)]
struct Rests(BTreeMap<u64, ServerId>);

impl Rests {
    fn server(&mut self, profile: &mut Profile, nanos: u64) -> Option<ServerId> {
        if let Some(id) = self.0.get(&nanos) {
            return Some(*id);
        }
        if profile.servers.len() >= MAX_SERVERS as usize {
            return None;
        }
        let mut text = format!("rest-{nanos}ns");
        while profile.servers.iter().any(|(name, _)| name.as_str() == text) {
            text.push('_');
        }
        let id = ServerId::new(profile.servers.len())?;
        let server = Server {
            latency: Duration::from_nanos(nanos),
            ..Server::default()
        };
        profile.servers.push((Name::new(&text)?, server));
        self.0.insert(nanos, id);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::{Files, compile, expand, parse};

    const HOSTS: [[u8; 4]; 3] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]];

    /// The topology between three hosts; two of them have so long a way, us.
    fn between(topology: &str, trips: [u64; 2]) -> Result<Profile, NearerError> {
        let profile = parse(&format!("version: 1\n{topology}\n")).unwrap_or_else(|error| panic!("{error}"));
        let addresses: Vec<Vec<IpAddr>> = HOSTS.map(|host| vec![host.into()]).into();
        let profile = expand(&profile, &addresses).unwrap_or_else(|error| panic!("{error}"));
        let trips = [0]
            .into_iter()
            .chain(trips)
            .map(|us| Duration::from_nanos(us * 1000));
        let own = HOSTS.map(|host| vec![Prefix::of(host.into())]);
        nearer(&profile, &own.into_iter().zip(trips).collect::<Vec<_>>())
    }

    /// The latencies between two hosts, us, and how often the path is cut.
    fn of(profile: &Profile, pair: &str) -> (Vec<u64>, u32) {
        let compiled = compile(profile, &Files::default()).unwrap_or_else(|error| panic!("{error}"));
        let at = profile
            .classes
            .iter()
            .position(|class| class.name.as_str() == pair);
        let path = compiled.paths[compiled.classes[at.unwrap()].path[0] as usize];
        let servers = path.servers.iter().take(path.len as usize);
        let latency = |&id: &u32| profile.servers[id as usize].1.latency.nanos() / 1000;
        (servers.map(latency).collect(), path.cuts.count_ones())
    }

    const BUS: &str = "topology: { kind: bus, link: { bandwidth: 10Mbit/s, latency: 1ms } }";

    #[test]
    fn each_pair_keeps_its_latency_and_the_bus_its_one_server() {
        let profile = between(BUS, [100, 30]).unwrap();
        for (pair, latencies) in [
            ("h1-h2", &[870, 30][..]),
            ("h2-h1", &[870, 30]),
            ("h1-h3", &[870, 100]),
            ("h2-h3", &[870]),
        ] {
            assert_eq!(of(&profile, pair), (latencies.to_vec(), 0), "{pair}");
        }
        assert_eq!(profile.servers.len(), 3);
    }

    #[test]
    fn the_last_servers_give_first() {
        let star = "topology: { kind: star, link: { bandwidth: 10Mbit/s, latency: 50us } }";
        let profile = between(star, [60, 0]).unwrap();
        assert_eq!(of(&profile, "h1-h3").0.iter().sum::<u64>(), 100);
        assert_eq!(of(&profile, "h1-h2").0.iter().sum::<u64>(), 40);
        assert_eq!(of(&profile, "h2-h1").0.iter().sum::<u64>(), 40);
    }

    #[test]
    fn nothing_changes_where_nobody_is_away() {
        let before = between(BUS, [0, 0]).unwrap();
        assert_eq!((before.servers.len(), of(&before, "h1-h2").0), (1, vec![1000]));
    }

    #[test]
    fn what_cannot_come_off_is_refused_with_both_figures() {
        let text = between(BUS, [600, 600]).unwrap_err().to_string();
        assert!(
            text.contains("`h2-h3`") && text.contains("1ms") && text.contains("1.2ms"),
            "{text}"
        );
        let changing = format!("{BUS}\ntimeline: {{ steps: [{{ at: 1s, link: bus, latency: 2ms }}] }}");
        let text = between(&changing, [1, 1]).unwrap_err().to_string();
        assert!(text.contains("change"), "{text}");
        for fate in [
            "jitter: { scale: 700us }",
            "jitter: { scale: 200us, distribution: normal }",
            "reorder: 1%",
        ] {
            let varying = BUS.replace("1ms }", &format!("1ms, {fate} }}"));
            let text = between(&varying, [200, 200]).unwrap_err().to_string();
            assert!(text.contains("jitter"), "{fate}: {text}");
        }
        let enough = BUS.replace("1ms }", "1ms, jitter: { scale: 600us } }");
        assert!(between(&enough, [200, 200]).is_ok());
        let class = format!(
            "{BUS}\nservers: {{ a: {{ latency: 1ms }} }}\nclasses: [{{ match: {{ protocol: udp }}, egress: [a] }}]"
        );
        assert!(matches!(between(&class, [1, 1]), Err(NearerError::NoPair { .. })));
    }
}
