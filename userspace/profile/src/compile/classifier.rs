//! The bit-vector classifier of one direction (Lakshman and Stiliadis, SIGCOMM 1998).
//!
//! A class makes rules, each a product of one set of values per dimension; the rules stand in order of precedence.
//! Per dimension, the ends of all rules' intervals cut the values into stretches; within one, the same rules admit
//! every value: a bit vector. A packet looks its value up in each dimension and the lowest bit that all vectors share
//! is the first rule that matches.
//!
//! Lists cost intervals, not rules: only "either side" (`port`, `address`) needs one rule per side, at most 4 per
//! class. Addresses are 128-bit numbers, IPv4 as `::ffff:a.b.c.d`; these are cut out of IPv6 prefixes, so `::/0` does
//! not hold IPv4. What a packet lacks is 0 in its key; a rule that looks at a field therefore also asks for the
//! EtherTypes and protocols that have it.

use std::collections::HashMap;

use perturb_common::abi::{
    Bound, DIMENSIONS, Dimension, Direction, MAX_BOUND_BITS, MAX_RULES, NONE, RULE_WORDS, RuleVector, Span,
};
use perturb_common::tables::Classifier;

use super::CompileError;
use super::intervals::Intervals;
use super::members::Members;
use crate::matching::{EtherType, Family, Match, PortRange, Prefix, Protocol};
use crate::model::{Class, Name};

/// One product of sets; `None`: every value.
type Rule = [Option<Intervals>; DIMENSIONS as usize];

/// The classifier of `classes`, the first that matches counts. `named` has the addresses of those that they name.
pub(super) fn compile(
    classes: &[Class],
    direction: Direction,
    named: &Members<'_>,
) -> Result<Classifier, CompileError> {
    let mut rules: Vec<Rule> = Vec::new();
    let mut classifier = Classifier::default();
    for (number, class) in (0u32..).zip(classes) {
        for rule in rules_of(&class.matching, direction, named) {
            rules.push(rule);
            classifier.rules.push(number);
        }
    }
    limit("rules of the classes' matches", rules.len(), MAX_RULES)?;
    let mut vectors = Vectors::new(rules.len());
    for (dimension, span) in classifier.spans.iter_mut().enumerate() {
        *span = sweep(&rules, dimension, &mut classifier.bounds, &mut vectors)?;
    }
    classifier.vectors = vectors.distinct;
    Ok(classifier)
}

fn limit(what: &'static str, count: usize, max: u32) -> Result<(), CompileError> {
    if count > max as usize {
        Err(CompileError::TooMany { what, count, max })
    } else {
        Ok(())
    }
}

/// The rules of a match, none if no packet of this direction can match.
fn rules_of(matching: &Match, direction: Direction, named: &Members<'_>) -> Vec<Rule> {
    let (local, remote) = match direction {
        Direction::Egress => (Dimension::Source, Dimension::Destination),
        Direction::Ingress => (Dimension::Destination, Dimension::Source),
    };
    let mut base: Rule = Default::default();
    narrow(&mut base, Dimension::Ethertype, ethertypes(matching));
    narrow(&mut base, Dimension::Protocol, protocols(matching));
    narrow(
        &mut base,
        Dimension::Dscp,
        points(matching.dscp.iter().map(|dscp| dscp.0.into())),
    );
    narrow(
        &mut base,
        Dimension::Mark,
        points(matching.fwmark.iter().map(|&mark| mark.into())),
    );
    if !matching.cgroup.is_empty() {
        let numbers = match direction {
            Direction::Egress => named.cgroups.within(&matching.cgroup),
            Direction::Ingress => Vec::new(),
        };
        let numbers = numbers.into_iter().map(u128::from);
        narrow(
            &mut base,
            Dimension::Cgroup,
            Some(numbers.map(|one| (one, one)).collect()),
        );
    }
    for (dimension, list) in [
        (Dimension::Source, &matching.source),
        (Dimension::Destination, &matching.destination),
        (local, &matching.local),
        (remote, &matching.remote),
    ] {
        narrow(&mut base, dimension, addresses(list));
    }
    let hosts = matching.host.iter().flat_map(|host| named.host(host));
    let groups = |names: &[Name]| -> Vec<Prefix> {
        let members = names.iter().flat_map(|name| named.group(name));
        members.copied().collect()
    };
    for (dimension, is_given, known) in [
        (remote, !matching.host.is_empty(), hosts.collect()),
        (remote, !matching.group.is_empty(), groups(&matching.group)),
        (
            local,
            !matching.local_group.is_empty(),
            groups(&matching.local_group),
        ),
    ] {
        if is_given {
            // Those without an address: no packet comes from one.
            narrow(&mut base, dimension, Some(addresses(&known).unwrap_or_default()));
        }
    }
    for (dimension, list) in [
        (Dimension::SourcePort, &matching.source_port),
        (Dimension::DestinationPort, &matching.destination_port),
        (port_of(local), &matching.local_port),
        (port_of(remote), &matching.remote_port),
    ] {
        narrow(&mut base, dimension, ports(list));
    }
    let sides = [Dimension::Source, Dimension::Destination];
    let mut rules = either(vec![base], sides, addresses(&matching.address).as_ref());
    rules = either(rules, sides.map(port_of), ports(&matching.port).as_ref());
    rules.retain(|rule| rule.iter().flatten().all(|set| !set.is_empty()));
    rules
}

fn port_of(side: Dimension) -> Dimension {
    if side == Dimension::Source {
        Dimension::SourcePort
    } else {
        Dimension::DestinationPort
    }
}

/// Each rule twice: with `set` at either of the `sides`.
fn either(rules: Vec<Rule>, sides: [Dimension; 2], set: Option<&Intervals>) -> Vec<Rule> {
    let Some(set) = set else { return rules };
    let at = |rule: &Rule, side| {
        let mut rule = rule.clone();
        narrow(&mut rule, side, Some(set.clone()));
        rule
    };
    rules
        .iter()
        .flat_map(|rule| sides.map(|side| at(rule, side)))
        .collect()
}

/// Lets `rule` admit only what `set` holds as well.
fn narrow(rule: &mut Rule, dimension: Dimension, set: Option<Intervals>) {
    if let (Some(place), Some(set)) = (rule.get_mut(dimension as usize), set) {
        *place = Some(
            place
                .take()
                .map_or_else(|| set.clone(), |held| held.intersection(&set)),
        );
    }
}

fn points(values: impl ExactSizeIterator<Item = u128>) -> Option<Intervals> {
    (values.len() > 0).then(|| values.map(|value| (value, value)).collect())
}

fn ports(list: &[PortRange]) -> Option<Intervals> {
    let range = |ports: &PortRange| (ports.low.into(), ports.high.into());
    (!list.is_empty()).then(|| list.iter().map(range).collect())
}

/// `::ffff:0:0/96`, where the IPv4 addresses lie.
const MAPPED: (u128, u128) = (0xffff_0000_0000, 0xffff_ffff_ffff);

fn addresses(list: &[Prefix]) -> Option<Intervals> {
    let of_family = |family| {
        list.iter()
            .filter(move |prefix| prefix.family() == family)
            .map(Prefix::range)
    };
    let mapped: Intervals = [MAPPED].into_iter().collect();
    let v4: Intervals = of_family(Family::Ipv4).collect();
    let v6: Intervals = of_family(Family::Ipv6).collect();
    (!list.is_empty()).then(|| v4.union(&v6.intersection(&mapped.complement(u128::MAX))))
}

/// Boundaries between the addresses of hosts, which have none in common; `vector` is the host's number.
pub(super) fn hosts(hosts: &[Vec<Prefix>]) -> Result<Vec<Bound>, CompileError> {
    let mut ranges: Vec<(u128, u128, u32)> = Vec::new();
    for (number, prefixes) in (0u32..).zip(hosts) {
        let of_host = addresses(prefixes).unwrap_or_default();
        ranges.extend(of_host.iter().map(|&(low, high)| (low, high, number)));
    }
    ranges.sort_unstable();
    let bounds = between(ranges);
    limit(
        "boundaries between the hosts' addresses",
        bounds.len(),
        1 << MAX_BOUND_BITS,
    )?;
    Ok(bounds)
}

/// Boundaries between ascending ranges that have nothing in common, each with a number.
pub(super) fn between(ranges: Vec<(u128, u128, u32)>) -> Vec<Bound> {
    if ranges.is_empty() {
        return Vec::new();
    }
    let bound = |value: u128, vector| Bound {
        high: (value >> 64) as u64,
        low: value as u64,
        vector,
        reserved: 0,
    };
    let mut bounds = Vec::with_capacity(2 * ranges.len() + 1);
    let mut from = Some(0);
    for (low, high, number) in ranges {
        if let Some(from) = from.filter(|&from| from < low) {
            bounds.push(bound(from, NONE));
        }
        bounds.push(bound(low, number));
        from = high.checked_add(1);
    }
    bounds.extend(from.map(|from| bound(from, NONE)));
    bounds
}

fn ethertypes(matching: &Match) -> Option<Intervals> {
    let point =
        |ethertype: EtherType| -> Intervals { points([ethertype.0.into()].into_iter()).unwrap_or_default() };
    let ip = || point(EtherType::IPV4).union(&point(EtherType::IPV6));
    let mut set = points(matching.ethertype.iter().map(|ethertype| ethertype.0.into()));
    let mut narrow = |with: Intervals| {
        set = Some(
            set.take()
                .map_or_else(|| with.clone(), |held| held.intersection(&with)),
        );
    };
    if matching.non_ip {
        narrow(ip().complement(u16::MAX.into()));
    }
    if matching.looks_at_ip() {
        narrow(ip());
    }
    match matching.family {
        Some(Family::Ipv4) => narrow(point(EtherType::IPV4)),
        Some(Family::Ipv6) => narrow(point(EtherType::IPV6)),
        None => {}
    }
    set
}

fn protocols(matching: &Match) -> Option<Intervals> {
    let listed = points(matching.protocol.iter().map(|protocol| protocol.0.into()));
    if !matching.looks_at_ports() {
        return listed;
    }
    let with_ports: Intervals = Protocol::WITH_PORTS
        .iter()
        .map(|protocol| (protocol.0.into(), protocol.0.into()))
        .collect();
    Some(listed.map_or_else(|| with_ports.clone(), |listed| listed.intersection(&with_ports)))
}

/// Cuts one dimension at the ends of all rules' intervals.
fn sweep(
    rules: &[Rule],
    dimension: usize,
    bounds: &mut Vec<Bound>,
    vectors: &mut Vectors,
) -> Result<Span, CompileError> {
    let start = bounds.len();
    let mut current = Current::none();
    // (value from which on, rule, whether it admits)
    let mut edges: Vec<(u128, usize, bool)> = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        match rule.get(dimension).and_then(Option::as_ref) {
            None => current.flip(index),
            Some(set) => {
                for &(low, high) in set.iter() {
                    edges.push((low, index, true));
                    if let Some(above) = high.checked_add(1) {
                        edges.push((above, index, false));
                    }
                }
            }
        }
    }
    let as_u32 = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    if edges.is_empty() {
        return Ok(Span {
            start: as_u32(start),
            len: 0,
        });
    }
    edges.sort_unstable();
    let mut edges = edges.into_iter().peekable();
    let mut value = 0u128;
    loop {
        while let Some(&(at, index, admits)) = edges.peek()
            && at == value
        {
            debug_assert_ne!(current.has(index), admits, "the intervals of a rule are disjoint");
            current.flip(index);
            edges.next();
        }
        let vector = vectors.number(&current);
        if bounds
            .get(start..)
            .and_then(<[Bound]>::last)
            .is_none_or(|last| last.vector != vector)
        {
            bounds.push(Bound {
                high: (value >> 64) as u64,
                low: value as u64,
                vector,
                reserved: 0,
            });
        }
        match edges.peek() {
            Some(&(next, ..)) => value = next,
            None => break,
        }
    }
    let len = bounds.len() - start;
    limit(
        "different values in one key of the classes' matches",
        len,
        1 << MAX_BOUND_BITS,
    )?;
    Ok(Span {
        start: as_u32(start),
        len: as_u32(len),
    })
}

/// The vector under construction, and a hash of it that costs a flip, not a pass over the words.
struct Current {
    words: [u64; RULE_WORDS],
    hash: u64,
}

impl Current {
    fn none() -> Self {
        Self {
            words: [0; RULE_WORDS],
            hash: 0,
        }
    }

    fn flip(&mut self, rule: usize) {
        if let Some(word) = self.words.get_mut(rule / 64) {
            *word ^= 1 << (rule % 64);
            // Zobrist: each bit has a random number of its own (SplitMix64's finalizer), the hash is their sum mod 2.
            let mut z = (rule as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            self.hash ^= z ^ (z >> 31);
        }
    }

    fn has(&self, rule: usize) -> bool {
        self.words
            .get(rule / 64)
            .is_some_and(|word| word >> (rule % 64) & 1 != 0)
    }
}

/// Vectors, each once.
struct Vectors {
    /// Words that any rule uses.
    used: usize,
    distinct: Vec<RuleVector>,
    by_hash: HashMap<u64, u32>,
}

impl Vectors {
    fn new(rules: usize) -> Self {
        Self {
            used: rules.div_ceil(64),
            distinct: Vec::with_capacity(rules),
            by_hash: HashMap::with_capacity(rules),
        }
    }

    fn number(&mut self, current: &Current) -> u32 {
        let known = self.by_hash.get(&current.hash).copied();
        let same = |&number: &u32| {
            let vector = self.distinct.get(number as usize);
            vector.is_some_and(|vector| vector.words[..self.used] == current.words[..self.used])
        };
        // Should two vectors have one hash, the later one is stored again each time: larger, never wrong.
        known.filter(same).unwrap_or_else(|| {
            let number = u32::try_from(self.distinct.len()).unwrap_or(u32::MAX);
            self.distinct.push(RuleVector { words: current.words });
            self.by_hash.insert(current.hash, number);
            number
        })
    }
}
