//! netem's slots, and a profile's.

use super::import::HORIZON;
use super::{Between, Netem, Slot};
use crate::model::{self, Distribution, Server};
use crate::{Duration, Loss, Size};

/// Where tc looks for tables.
const TABLES: &str = "/usr/lib/tc";

/// The shape that tc means by a name; none is even.
pub(super) fn shape(name: Option<&str>) -> Distribution {
    match name {
        None | Some("uniform") => Distribution::Uniform,
        Some("normal") => Distribution::Normal,
        Some("pareto") => Distribution::Pareto,
        Some("paretonormal") => Distribution::ParetoNormal,
        Some(name) => Distribution::Table(format!("{TABLES}/{name}.dist")),
    }
}

/// The name of a shape; none is even. `lose` is told where its table is.
pub(super) fn name(shape: &Distribution, lose: &mut impl FnMut(&str)) -> Option<String> {
    Some(match shape {
        Distribution::Uniform => return None,
        Distribution::Normal => "normal".to_owned(),
        Distribution::Pareto => "pareto".to_owned(),
        Distribution::ParetoNormal => "paretonormal".to_owned(),
        Distribution::Table(file) => {
            let name = file.rsplit('/').next().unwrap_or(file);
            let name = name.strip_suffix(".dist").unwrap_or(name).to_owned();
            lose(&format!(
                "where its table is: tc takes it from /usr/lib/tc/{name}.dist"
            ));
            name
        }
    })
}

/// Whether a server does to packets what its slots must come behind, as netem's do.
pub(super) fn comes_before_slots(server: &Server) -> bool {
    server.jitter.is_some()
        || server.reorder.is_some()
        || server.loss != Loss::default()
        || !server.duplicate.is_never()
}

/// Gives the netem's slots to `server`, which does what else the netem does, or to a server behind it.
pub(super) fn import(netem: &Netem, server: &mut Server, lose: &mut impl FnMut(String)) -> Option<Server> {
    let slot = netem.slot.as_ref()?;
    let between = match &slot.between {
        // Then the kernel has none (`get_slot`).
        Between::Range(_, Duration::ZERO) | Between::Table(_, _, Duration::ZERO) => return None,
        Between::Range(min, max) => model::Between::Range(*min, *max),
        Between::Table(name, delay, scale) => {
            if name.is_none() {
                lose("the distribution of the slots, which tc does not show: it is uniform here".to_owned());
            }
            model::Between::Drawn {
                distribution: shape(name.as_deref()),
                delay: *delay,
                scale: *scale,
            }
        }
    };
    let slot = model::Slot {
        between,
        packets: Some(slot.packets).filter(|&packets| packets > 0),
        bytes: Some(Size::from_bytes(slot.bytes.into())).filter(|bytes| bytes.bytes() > 0),
    };
    if netem.delay > Duration::ZERO || netem.rate.is_some() {
        lose(
            "that netem asks for slots while packets are under way, so that the wait for one hides in the delay: here it comes on top"
                .to_owned(),
        );
    }
    if server.jitter.as_ref().is_some_and(|jitter| jitter.reorder) {
        lose(
            "the order that the jitter makes: packets leave slots in the order in which they came".to_owned(),
        );
    }
    if netem.limit != Netem::UNLIMITED {
        let waits = slot
            .frames(Size::from_bytes(super::FRAME))
            .map_or(1, |each| u64::from(netem.limit).div_ceil(each));
        if slot.longest().nanos().saturating_mul(waits) > HORIZON.nanos() {
            lose(format!(
                "packets of the `limit` of {} that would wait for a slot for longer than a minute",
                netem.limit
            ));
        }
    }
    let alone = comes_before_slots(server);
    let mut behind = Server::default();
    let slotted = if alone { &mut behind } else { server };
    slotted.slot = Some(slot);
    if netem.limit != Netem::UNLIMITED && slotted.buffer.packets.is_none() {
        slotted.buffer.packets = Some(netem.limit.clamp(1, perturb_common::abi::MAX_RING_SLOTS));
    }
    alone.then_some(behind)
}

/// A server's slots as netem's.
pub(super) fn export(slot: &model::Slot, lose: &mut impl FnMut(&str)) -> Slot {
    let between = match &slot.between {
        model::Between::Range(min, max) => Between::Range(*min, *max),
        model::Between::Drawn {
            distribution,
            delay,
            scale,
        } => {
            let name = name(distribution, lose).unwrap_or_else(|| "uniform".to_owned());
            Between::Table(Some(name), *delay, *scale)
        }
    };
    Slot {
        between,
        packets: slot.packets.unwrap_or(0),
        bytes: slot
            .bytes
            .map_or(0, |bytes| u32::try_from(bytes.bytes()).unwrap_or(u32::MAX)),
    }
}
