//! Reads the counters.

use aya::maps::MapError;
use perturb_common::{
    abi::{BUCKETS, ClassCounters, EVENTS, ServerCounters, class_counter},
    lead::Lead,
};

use crate::maps::{Maps, PerCpuArray, Wire};

/// All counters at one time, summed over the CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// By [`perturb_common::abi::Event`].
    pub events: [u64; EVENTS as usize],
    /// By class, in the profile's order: egress, ingress.
    pub classes: Vec<[ClassCounters; 2]>,
    /// By server, in the order asked for.
    pub servers: Vec<ServerCounters>,
    /// Held packets by lateness ([`perturb_common::abi::histogram`]).
    pub lateness: [u64; BUCKETS as usize],
    /// How far the emulation is ahead of the clock, to make up for a timer that fires late.
    pub lead: Lead,
}

impl Counters {
    /// Reads the counters of `classes` classes and of the servers in these slots.
    pub fn read(maps: &Maps, classes: u32, slots: &[u32]) -> Result<Self, MapError> {
        let mut events = [0; EVENTS as usize];
        for (sum, index) in events.iter_mut().zip(0..) {
            *sum = maps.events.get(&index, 0)?.iter().sum();
        }
        let mut lateness = [0; BUCKETS as usize];
        for (sum, index) in lateness.iter_mut().zip(0..) {
            *sum = maps.lateness.get(&index, 0)?.iter().sum();
        }
        let class = |index| sum(&maps.class_counters, index, add_class);
        Ok(Self {
            events,
            lateness,
            lead: Lead(maps.lead.get(&0, 0)?),
            classes: (0..classes)
                .map(|index| Ok([class(class_counter(index, 0))?, class(class_counter(index, 1))?]))
                .collect::<Result<_, MapError>>()?,
            servers: slots
                .iter()
                .map(|&slot| sum(&maps.server_counters, slot, add_server))
                .collect::<Result<_, _>>()?,
        })
    }
}

fn sum<T: bytemuck::Pod>(
    map: &PerCpuArray<Wire<T>>,
    index: u32,
    add: impl Fn(&mut T, &T),
) -> Result<T, MapError> {
    let values = map.get(&index, 0)?;
    Ok(values.iter().fold(T::zeroed(), |mut total, value| {
        add(&mut total, &value.0);
        total
    }))
}

fn add_class(total: &mut ClassCounters, cpu: &ClassCounters) {
    total.packets += cpu.packets;
    total.segments += cpu.segments;
    total.bytes += cpu.bytes;
    total.dropped += cpu.dropped;
    total.delay += cpu.delay;
}

fn add_server(total: &mut ServerCounters, cpu: &ServerCounters) {
    total.packets += cpu.packets;
    total.bytes += cpu.bytes;
    total.tail_drops += cpu.tail_drops;
    total.losses += cpu.losses;
    total.busy += cpu.busy;
    total.early_drops += cpu.early_drops;
    total.marks += cpu.marks;
    total.marks_above += cpu.marks_above;
    total.loss_marks += cpu.loss_marks;
    total.max_backlog = total.max_backlog.max(cpu.max_backlog);
}
