//! What an emulation has done so far: counters by class and server, drops by reason, lateness.

mod bystander;
mod counts;
mod faults;
mod histogram;
mod read;

use std::{borrow::Cow, iter, time::Duration};

pub use bystander::{Bystander, merge, wire_packets};
pub use faults::{Checked, Fault, Place, lost, warn};
pub use histogram::{Histogram, Spread};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::hosts::Hosts;

/// An emulation as `perturb status --json` prints it. What does not apply is absent.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Report {
    /// Its name in the registry.
    pub id: String,
    /// Interfaces, by name.
    pub interfaces: Vec<String>,
    /// The private hosts that have them, in the same order; all counters are of these hosts together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The one of them on which the report was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The containers that have them, in the same order (`apply --container`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<String>,
    /// `fq` or `user`.
    pub pacer: String,
    /// Process that made it.
    pub pid: u32,
    /// When it began, seconds since 1970.
    pub since: u64,
    /// Changes of the profile since.
    pub updates: u32,
    /// Until the programs let traffic pass unless the controller is heard of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_left_ms: Option<u64>,
    /// Whether traffic passes untouched until it is resumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Interfaces that are gone and waited for (`--follow`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
    /// Until it ends by itself (`--for`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_in_ms: Option<u64>,
    /// Until it undoes itself unless it is confirmed (`--confirm`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm_left_ms: Option<u64>,
    /// Hosts that classes name, whose addresses are looked up, and cgroups.
    #[serde(default, skip_serializing_if = "Hosts::is_empty")]
    #[schema(value_type = std::collections::BTreeMap<String, crate::hosts::NamedHost>)]
    pub named_hosts: Hosts,
    /// By class, in the profile's order.
    pub classes: Vec<ClassReport>,
    /// By server.
    pub servers: Vec<ServerReport>,
    /// Drops that the profile asks for, by reason.
    pub drops: Drops,
    /// Drops that it does not ask for: any makes a measurement invalid.
    pub unintended: Unintended,
    /// Where all packets are.
    pub balance: Balance,
    /// Why what was measured is not to be trusted, once traffic rests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<Vec<Fault>>,
    /// Everything else that was counted.
    pub events: Events,
    /// The user pacer's store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// How late held packets left; upper bounds, to an eighth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Lateness>,
}

/// Counters of a class.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ClassReport {
    /// Its name.
    pub name: String,
    /// What this host sends.
    pub egress: Flow,
    /// What it receives.
    pub ingress: Flow,
}

/// Counters of a class in one direction.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Flow {
    /// Packets; a super-packet counts once.
    pub packets: u64,
    /// Wire packets.
    pub wire_packets: u64,
    /// Wire bytes.
    pub bytes: u64,
    /// Dropped by emulation.
    pub dropped: u64,
    /// Mean delay of what was not dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_delay_us: Option<f64>,
    /// Its sum over all of them, ns.
    #[serde(skip)]
    pub delay_ns: u64,
}

/// Counters of a server.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ServerReport {
    /// Its name.
    pub name: String,
    /// Packets served.
    pub packets: u64,
    /// Wire bytes served.
    pub bytes: u64,
    /// Dropped because a buffer was full.
    pub tail_drops: u64,
    /// Dropped by a loss model.
    pub losses: u64,
    /// Marked by it in place of being dropped.
    pub loss_marks: u64,
    /// Time it was busy, summed over its instances.
    pub busy_ms: f64,
    /// Longest backlog that a packet found, as the time it waited.
    pub max_backlog_us: f64,
    /// The time that a packet would wait if it arrived now; absent where there is one for each interface, host or flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlog_us: Option<f64>,
    /// Share of the time it was busy: since the emulation began, or since the last look (`--watch`). Above 1 if it has
    /// several instances, or while packets that it is to serve later are already counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    /// Where it is in its timeline, if it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline: Option<TimelineReport>,
    /// What the law of its queue does, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueReport>,
}

impl ServerReport {
    /// Dropped, whatever the reason.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.tail_drops + self.losses + self.queue.as_ref().map_or(0, |queue| queue.drops)
    }
}

/// What the law of a queue does.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct QueueReport {
    /// As the profile has it.
    pub kind: Cow<'static, str>,
    /// Packets that it dropped.
    pub drops: u64,
    /// Packets that it marked in place of dropping them.
    pub marks: u64,
    /// Packets that it marked because they had waited for longer than the threshold.
    pub threshold_marks: u64,
    /// Whether CoDel drops or marks packets now; absent of other laws.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropping: Option<bool>,
    /// CoDel's `count`: the next drop comes interval / sqrt(count) after the last; absent of other laws.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// PIE's `drop_prob_`, a share; absent of other laws.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drop_probability: Option<f64>,
    /// PIE's `burst_allowance_`: for how long nothing is dropped yet; absent of other laws.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_allowance_ms: Option<f64>,
    /// RED's average wait, as of the last packet; absent of other laws.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_ms: Option<f64>,
    /// Adaptive RED's max_p, a share; absent of other laws.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_p: Option<f64>,
    /// How long those packets waited that it judged and that were served; upper bounds, to an eighth. Since the server is there, or
    /// since the last look (`--watch`); absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sojourn: Option<Sojourn>,
    /// The same of all of them.
    #[serde(skip)]
    pub waits: Histogram,
}

/// Quantiles of waits.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Sojourn {
    /// Median, at most this.
    pub p50_us: f64,
    /// 95 % of the packets, at most this.
    pub p95_us: f64,
    /// 99 % of the packets, at most this.
    pub p99_us: f64,
    /// All, at most this.
    pub max_us: f64,
    /// As metrics have it.
    #[serde(skip)]
    pub spread: Spread,
}

/// Where a server is in its timeline.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct TimelineReport {
    /// When it began, or will: by CLOCK_MONOTONIC, ns. Absent while it waits for a packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began_ns: Option<u64>,
    /// Since it began, or began anew; absent until it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_s: Option<f64>,
    /// How often it has begun anew.
    pub turn: u64,
    /// Until it starts at a time that the profile says; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts_in_s: Option<f64>,
    /// The segment in force, from 1 on; 0 until it starts.
    pub segment: u32,
    /// How many segments there are: steps, and what ramps and traces are laid out as.
    pub segments: u32,
}

/// Intended drops.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[expect(missing_docs, reason = "named as in perturb_common::abi::Event")]
pub struct Drops {
    pub tail_drop: u64,
    pub packet_limit: u64,
    pub loss: u64,
    pub burst_loss: u64,
    pub nth_loss: u64,
    /// Given up after too many collisions.
    pub collided: u64,
    /// They would have begun service while their server was down.
    pub down: u64,
    /// By the law of a queue.
    pub early_drop: u64,
}

impl Drops {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self {
            tail_drop,
            packet_limit,
            loss,
            burst_loss,
            nth_loss,
            collided,
            down,
            early_drop,
        } = *self;
        tail_drop + packet_limit + loss + burst_loss + nth_loss + collided + down + early_drop
    }
}

/// What no profile asks for, by place.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(missing_docs, reason = "named as in perturb_common::abi::Event")]
pub struct Unintended {
    pub horizon: u64,
    pub hold_full: u64,
    pub no_slot: u64,
    pub slot_reused: u64,
    /// By the pacer: more was to be held than `limits.held` allows.
    pub pacer: u64,
    /// By the devices in which packets wait: a TAP's full ring, sch_fq, a processor's full backlog.
    pub hold_device: u64,
    /// By the devices that split super-packets.
    pub splitter: u64,
    /// Not dropped: they passed a server as if it were not there, because more instances were busy than there is room for.
    pub no_instance: u64,
}

impl Unintended {
    /// Those that were dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        let Self {
            horizon,
            hold_full,
            no_slot,
            slot_reused,
            pacer,
            hold_device,
            splitter,
            no_instance: _,
        } = *self;
        horizon + hold_full + no_slot + slot_reused + pacer + hold_device + splitter
    }
}

/// Where the packets are: `captured + duplicated = released + held + dropped + unintended + unaccounted`. A super-packet
/// is one packet, unless it is split: then each of its wire packets is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Balance {
    /// Whose path was begun, and those that a splitter dropped before.
    pub captured: u64,
    /// Copies that were made of them.
    pub duplicated: u64,
    /// Sent on to their interface.
    pub released: u64,
    /// That wait, when the controller looked last.
    pub held: u64,
    /// Memory that they took then.
    pub held_bytes: u64,
    /// Dropped as the profile asks.
    pub dropped: u64,
    /// Dropped otherwise.
    pub unintended: u64,
    /// On their way between devices, or lost where nobody counts: 0 at rest.
    pub unaccounted: i64,
    /// Dropped by the emulated interfaces and their qdiscs, whosesoever they were: after release, or without perturb.
    pub interface_drops: u64,
}

/// What the user pacer holds.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Held {
    /// Packets that wait.
    pub packets: u64,
    /// Memory that they take.
    pub bytes: u64,
    /// Whether its threads may have real-time priority.
    pub real_time: bool,
    /// How often a thread gave real-time priority up because it was busy: the kernel stops busy real-time threads.
    pub busy: u64,
    /// How often a thread was kept from running for more than 5 ms while a packet was due.
    pub stalls: u64,
    /// For how long in all.
    pub stalled_ms: f64,
    /// The longest of them.
    pub longest_stall_ms: f64,
    /// The same of each thread.
    pub threads: Vec<PacerThread>,
}

/// A thread of the user pacer.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PacerThread {
    /// Packets that it let go.
    pub released: u64,
    /// How often it gave real-time priority up because it was busy.
    pub busy: u64,
    /// How often it was kept from running for more than 5 ms while a packet was due.
    pub stalls: u64,
    /// For how long in all.
    pub stalled_ms: f64,
    /// The longest of them.
    pub longest_stall_ms: f64,
}

/// Other counts.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[expect(missing_docs, reason = "named as in perturb_common::abi::Event")]
pub struct Events {
    pub unmatched: u64,
    pub lease_expired: u64,
    pub paused: u64,
    pub malformed: u64,
    pub fragment_unknown: u64,
    pub contention: u64,
    pub marked: u64,
    pub not_ecn_capable: u64,
    pub duplicated: u64,
    pub corrupted: u64,
    pub split: u64,
    pub released: u64,
    pub foreign: u64,
    pub inconsistent: u64,
    pub outdated: u64,
    pub unlogged: u64,
}

/// Quantiles of lateness, by the lead at the time of leaving; packets that left early count as not late.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Lateness {
    /// Median, at most this.
    pub p50_us: f64,
    /// 99 % of the packets, at most this.
    pub p99_us: f64,
    /// All, at most this.
    pub max_us: f64,
    /// By how much departures are moved ahead now, to make up for a timer that fires late, and with the user pacer for
    /// the receiver's wake-up, which counts as late as well.
    pub lead_us: f64,
    /// As metrics have it.
    #[serde(skip)]
    pub spread: Spread,
}

impl Report {
    /// Its interfaces, for people.
    #[must_use]
    pub fn place(&self) -> String {
        let hosts = self.hosts.iter().chain(&self.containers).map(Some);
        let hosts = hosts.chain(iter::repeat(None));
        let names = self.interfaces.iter().zip(hosts).map(|(name, host)| match host {
            Some(host) => format!("{host}:{name}"),
            None => name.clone(),
        });
        names.collect::<Vec<_>>().join(", ")
    }

    /// Replaces every server's utilization and waits by those since an earlier look, `time` ago. Of reports that came as JSON the latter
    /// are absent, for quantiles of all time say nothing of since then.
    pub fn since(&mut self, earlier: &Self, time: Duration) {
        for server in &mut self.servers {
            let before = earlier.servers.iter().find(|before| before.name == server.name);
            server.utilization = before
                .filter(|_| !time.is_zero())
                .map(|before| (server.busy_ms - before.busy_ms).max(0.0) / (time.as_secs_f64() * 1e3));
            if let (Some(queue), Some(before)) =
                (&mut server.queue, before.and_then(|before| before.queue.as_ref()))
            {
                queue.sojourn = queue.waits.since(&before.waits).sojourn();
            }
        }
    }

    /// Packets that the programs have seen.
    #[must_use]
    pub fn seen(&self) -> u64 {
        let of_class = |class: &ClassReport| class.egress.packets + class.ingress.packets;
        let classified: u64 = self.classes.iter().map(of_class).sum();
        let Events {
            unmatched,
            lease_expired,
            paused,
            malformed,
            split,
            ..
        } = self.events;
        classified + unmatched + lease_expired + paused + malformed + split
    }
}
