//! Commands of tc that do what a profile says, as far as netem can.

use perturb_common::abi::Direction;

use super::{Chance, FRAME, IN_ORDER, Link, Loss, Netem, OTHER_RATES, slots};
use crate::Duration;
use crate::model::{Correlated, Drift, Framing, Profile, Queue, Scope, Server, ServerId, Volume};

/// A profile as commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The commands, for a shell.
    pub commands: Vec<String>,
    /// What they do not do, one sentence each.
    pub lost: Vec<String>,
}

/// The commands that do on an interface what `profile` says.
#[must_use]
pub fn export(profile: &Profile, device: &str) -> Exported {
    let mut lost = Vec::new();
    if !profile.overhead.is_none() {
        lost.push("the overhead: netem takes no processor time".to_owned());
    }
    if profile.is_changing() {
        lost.push("what changes with time: netem stays as it is".to_owned());
    }
    if profile.topology.is_some() {
        lost.push("the topology: netem is one link".to_owned());
    }
    if profile.seed != 1 {
        lost.push("the seed: netem draws otherwise".to_owned());
    }
    if profile.mtu.is_some() {
        lost.push("the `mtu`: set the interface's".to_owned());
    }
    if profile.tcp != crate::Tcp::default() {
        lost.push("`tcp`: netem is no end of a connection".to_owned());
    }
    let mut paths: [Option<&[ServerId]>; 2] = [None, None];
    // What takes all packets, if anything does.
    let mut classes: Vec<_> = profile.classes.iter().collect();
    classes.sort_by_key(|class| !class.matching.is_everything());
    for class in classes {
        let [egress, ingress] = class.paths();
        if egress.is_none() && ingress.is_none() {
            lost.push(format!(
                "class `{}`, which passes untouched: netem takes all packets",
                class.name
            ));
            continue;
        }
        if paths.iter().any(Option::is_some) {
            lost.push(format!("class `{}`: netem has no classes", class.name));
            continue;
        }
        if !class.matching.is_everything() {
            lost.push(format!(
                "the match of class `{}`: netem takes all packets",
                class.name
            ));
        }
        paths = [egress, ingress];
    }
    let mut commands = Vec::new();
    let mut put = |device: &str, path: &[ServerId], lost: &mut Vec<String>| {
        let netem = combined(profile, path, lost);
        commands.push(
            format!("tc qdisc add dev {device} root handle 1: netem {netem}")
                .trim_end()
                .to_owned(),
        );
    };
    if let Some(path) = paths[Direction::Egress as usize] {
        put(device, path, &mut lost);
    }
    if let Some(path) = paths[Direction::Ingress as usize] {
        let before = [
            "ip link add ifb0 type ifb".to_owned(),
            "ip link set ifb0 up".to_owned(),
            format!("tc qdisc add dev {device} clsact"),
            format!("tc filter add dev {device} ingress matchall action mirred egress redirect dev ifb0"),
        ];
        put("ifb0", path, &mut lost);
        let at = commands
            .iter()
            .position(|command| command.contains(" dev ifb0 "))
            .unwrap_or(0);
        commands.splice(at..at, before);
    }
    Exported { commands, lost }
}

/// The netem that does what the servers of a path do.
fn combined(profile: &Profile, path: &[ServerId], lost: &mut Vec<String>) -> Netem {
    let mut netem = Netem::default();
    // Whether the jitter keeps the order, and the packets that may wait for the rate; none: any number.
    let mut in_order = None;
    let mut buffer = None;
    for (name, server) in path.iter().filter_map(|&id| profile.server(id)) {
        netem.delay = netem.delay.saturating_add(server.latency);
        let mut lose = |what: &str| lost.push(format!("server `{name}`: {what}"));
        if server.gap > Duration::ZERO {
            lose("the gap: netem's packets take time by their bytes only");
        }
        if let Some(rate) = server.bandwidth {
            if netem.rate.is_some() {
                lose("its bandwidth or another one: netem has one rate, the lowest is taken");
            }
            if netem.rate.is_none_or(|link| rate < link.rate) {
                netem.rate = Some(Link {
                    rate,
                    ..Link::from(server.framing)
                });
                buffer = waiting(server, &mut lose);
            }
        }
        if let Some(slot) = &server.slot {
            if netem.slot.is_some() {
                lose("its slots: netem has one kind, and another server has it");
            } else {
                netem.slot = Some(slots::export(slot, &mut lose));
                buffer = buffer.or(server.buffer.packets.map(u64::from));
            }
        }
        if netem.slot.is_some() && slots::comes_before_slots(server) {
            lose("its jitter, losses and copies behind the slots: netem's slots come behind them");
        }
        jitter(&mut netem, server, &mut in_order, &mut lose);
        loss(&mut netem, server, &mut lose);
        for (share, chance, what) in [
            (
                server.duplicate,
                &mut netem.duplicate,
                "its duplicates: another server has some",
            ),
            (
                server.corrupt,
                &mut netem.corrupt,
                "its damage: another server has some",
            ),
        ] {
            if !share.is_never() && !chance.is_none() {
                lose(what);
            } else if !share.is_never() {
                *chance = share.into();
            }
        }
        if let Some(reorder) = server.reorder {
            if netem.reorder.is_none() {
                netem.reorder = reorder.chance.into();
                netem.gap = if reorder.gap > 1 { reorder.gap } else { 0 };
            } else {
                lose("its `reorder`: another server has one");
            }
        }
        if server.ecn.is_some() {
            lose("`ecn`: netem marks only what it would lose");
        }
        if server.queue != Queue::Tail {
            lose("its `queue`: put a discipline of that kind below the netem");
        }
        if server.collisions.is_some() {
            lose("its collisions: netem has none");
        }
        if server.scope != Scope::Shared {
            lose("its scope: all packets share a netem");
        }
    }
    if !netem.reorder.is_none() && netem.delay == Duration::ZERO {
        lost.push("`reorder`: netem reorders with a `delay` only".to_owned());
        netem.reorder = Chance::default();
        netem.gap = 0;
    }
    if netem.is_correlated() {
        lost.push(OTHER_RATES.to_owned());
    }
    netem.limit = match (buffer, netem.under_way()) {
        (Some(packets), way) => {
            if way > 0 {
                lost.push(format!(
                    "the buffer by itself: netem limits packets, those under way included; {way} full frames are added for them"
                ));
            }
            u32::try_from(packets.saturating_add(way)).unwrap_or(u32::MAX)
        }
        (None, _) if netem.rate.is_some() || netem.slot.is_some() || netem.delay > Duration::ZERO => {
            Netem::UNLIMITED
        }
        _ => Netem::LIMIT,
    };
    match (in_order, netem.rate) {
        (Some(false), Some(_)) => {
            lost.push("`reorder: true`: with a rate netem keeps the order".to_owned());
        }
        (Some(true), None) => netem.rate = Some(Link::plain(IN_ORDER)),
        _ => {}
    }
    netem
}

/// Packets that may wait for a server's bandwidth; none: any number.
fn waiting(server: &Server, lose: &mut impl FnMut(&str)) -> Option<u64> {
    match (server.buffer.packets, server.buffer.volume, server.bandwidth) {
        (Some(packets), volume, _) => {
            if volume.is_some() {
                lose("the bytes of its buffer: netem limits packets");
            }
            Some(u64::from(packets))
        }
        (None, Some(volume), Some(rate)) => {
            lose("its buffer in bytes or time: netem limits packets; full frames are taken");
            let bytes = match volume {
                Volume::Bytes(size) => size.bytes(),
                Volume::Delay(delay) => rate.bytes_in(delay),
            };
            Some((bytes / FRAME).max(1))
        }
        _ => None,
    }
}

fn jitter(netem: &mut Netem, server: &Server, in_order: &mut Option<bool>, lose: &mut impl FnMut(&str)) {
    let Some(jitter) = &server.jitter else { return };
    if netem.jitter > Duration::ZERO {
        return lose("its jitter: netem has one, and another server has it");
    }
    netem.jitter = jitter.scale;
    match jitter.drift {
        Some(Drift::Packets(correlation)) => netem.correlation = correlation,
        Some(Drift::Time(_)) => lose("the `time_constant` of its jitter: netem's is no process in time"),
        None => {}
    }
    *in_order = Some(!jitter.reorder);
    netem.distribution = slots::name(&jitter.distribution, lose);
}

fn loss(netem: &mut Netem, server: &Server, lose: &mut impl FnMut(&str)) {
    if !server.loss.nth.is_empty() {
        lose("the losses of `nth`: netem loses by chance");
    }
    let random = Loss::Random(Chance {
        share: server.loss.random,
        correlation: server.loss.correlation,
    });
    let states = server
        .loss
        .states
        .map(|states| Loss::State([states.p13, states.p31, states.p32, states.p23, states.p14]));
    let burst = server
        .loss
        .burst
        .map(|burst| Loss::Gilbert([burst.to_bad, burst.to_good, burst.bad_loss, burst.good_loss]));
    for one in [Some(random), burst, states].into_iter().flatten() {
        if one.is_none() {
            continue;
        }
        if netem.loss.is_none() {
            netem.loss = one;
            netem.ecn = server.loss.ecn;
        } else {
            lose("a loss: netem has one model, and it is another one");
        }
    }
}

impl From<Framing> for Link {
    fn from(framing: Framing) -> Self {
        Self {
            packet_overhead: framing.compiled().packet_overhead,
            cell_size: framing.cell_size,
            cell_overhead: framing.cell_overhead as i32,
            ..Self::plain(crate::Rate::from_bits_per_second(0))
        }
    }
}

impl From<Correlated> for Chance {
    fn from(
        Correlated {
            probability,
            correlation,
        }: Correlated,
    ) -> Self {
        Self {
            share: probability,
            correlation,
        }
    }
}
