//! Emulations of other processes that a measurement may cross: those of this network namespace's interfaces. A command
//! that measures a path which it does not emulate itself looks at them before and after.

use std::{
    collections::BTreeMap,
    io, thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use perturb_dataplane::namespace::Namespace;

use super::{Checked, Fault, Place, Report};
use crate::{
    registry::{self, RegistryError},
    told::Told,
};

/// How often a controller tells what its devices have dropped, and some time for it: see [`crate::conduct::Lease::period`].
const TOLD: Duration = Duration::from_millis(1_200);
/// How long traffic may take to rest.
const SETTLING: Duration = Duration::from_secs(5);

/// What they had done before.
pub struct Bystander {
    /// `None` if this user may not see them.
    before: Option<Look>,
    /// Of which records it was said that they cannot be read.
    told: Told,
}

/// The emulations here, at one time.
#[derive(Default)]
struct Look {
    /// By their names in the registry.
    reports: BTreeMap<String, Report>,
    /// Whether no packet was between two devices.
    at_rest: bool,
}

impl Bystander {
    /// From now on.
    pub fn begin() -> anyhow::Result<Self> {
        let mut told = Told::default();
        let before = settled(&mut told)?;
        if before.is_none() {
            log::info!(
                "note: this user may not read {}, so nobody checks whether an emulation on this machine loses \
                 packets that its profile does not drop; root may look",
                registry::place().display()
            );
        }
        Ok(Self { before, told })
    }

    /// A result with what has gone wrong since. An error says that this could not be found out: the result is there all the
    /// same, so tell that first.
    pub fn check<T>(self, result: T) -> (Checked<T>, anyhow::Result<()>) {
        let (faults, looked) = match self.end() {
            Ok(faults) => (faults, Ok(())),
            Err(error) => (None, Err(error)),
        };
        let looked = looked.context(
            "looking at what the emulations on this machine did to packets meanwhile; do not trust the result, measure again",
        );
        (Checked { result, faults }, looked)
    }

    /// What has gone wrong since, of all of them; `None` if this user may not see them. What is unaccounted for counts if
    /// traffic rested before and rests now: otherwise packets are on their way, and nobody can tell.
    fn end(mut self) -> anyhow::Result<Option<Vec<Fault>>> {
        let Some(before) = self.before else {
            return Ok(None);
        };
        if before.reports.is_empty() {
            return Ok(Some(Vec::new()));
        }
        // What devices have dropped by now is known then.
        thread::sleep(TOLD);
        Ok(Some(judge(
            &before,
            &settled(&mut self.told)?.unwrap_or_default(),
        )))
    }
}

/// The emulations here, once traffic rests, or after five seconds.
fn settled(told: &mut Told) -> anyhow::Result<Option<Look>> {
    let start = Instant::now();
    let Some(mut reports) = here(told)? else {
        return Ok(None);
    };
    loop {
        let open = |report: &Report| report.balance.unaccounted != 0;
        if !reports.values().any(open) {
            return Ok(Some(Look {
                reports,
                at_rest: true,
            }));
        }
        thread::sleep(TOLD);
        let later = here(told)?.unwrap_or_default();
        // Nothing has moved, and what the controller knows of its devices was told in between.
        let rests = |report: &Report| {
            let earlier = reports.get(&report.id);
            earlier.is_some_and(|earlier| earlier.balance == report.balance)
        };
        let at_rest = later.values().all(rests);
        if at_rest || start.elapsed() > SETTLING {
            return Ok(Some(Look {
                reports: later,
                at_rest,
            }));
        }
        reports = later;
    }
}

/// What is wrong with each emulation that was there before, summed by place.
fn judge(before: &Look, now: &Look) -> Vec<Fault> {
    let mut all = Vec::new();
    for (id, earlier) in &before.reports {
        let Some(report) = now.reports.get(id) else {
            merge(&mut all, vec![Fault::ENDED]);
            continue;
        };
        merge(&mut all, report.faults_since(earlier));
        let missing = report.balance.unaccounted - earlier.balance.unaccounted;
        if before.at_rest && now.at_rest && missing != 0 {
            merge(
                &mut all,
                vec![Fault {
                    place: Place::Unaccounted,
                    packets: missing.unsigned_abs(),
                }],
            );
        }
    }
    all
}

/// Packets that the emulations here have seen so far, both ways, as they are on the wire; `None` if there is none, or this
/// user may not see them.
pub fn wire_packets() -> anyhow::Result<Option<u64>> {
    let reports = here(&mut Told::default())?.unwrap_or_default();
    let of = |report: &Report| -> u64 {
        let flows = report
            .classes
            .iter()
            .flat_map(|class| [&class.egress, &class.ingress]);
        flows.map(|flow| flow.wire_packets).sum()
    };
    Ok((!reports.is_empty()).then(|| reports.values().map(of).sum()))
}

/// Adds faults to others, place by place.
pub fn merge(all: &mut Vec<Fault>, more: Vec<Fault>) {
    for fault in more {
        match all.iter_mut().find(|other| other.place == fault.place) {
            Some(other) => other.packets += fault.packets,
            None => all.push(fault),
        }
    }
}

/// Reports of the emulations in force on interfaces of this namespace; `None` if this user may not see them.
fn here(told: &mut Told) -> anyhow::Result<Option<BTreeMap<String, Report>>> {
    let records = match registry::records() {
        Ok(recorded) => recorded.or_warn(told),
        Err(RegistryError::File { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let namespace = Namespace::current()
        .and_then(|namespace| namespace.inode())
        .context("asking for this network namespace")?;
    let mut reports = BTreeMap::new();
    for record in records {
        let is_here = |interface: &registry::InterfaceRecord| interface.namespace == namespace;
        if record.interfaces.iter().any(is_here)
            && let Some(report) = Report::of_or_tell(&record, told)?
        {
            reports.insert(record.id, report);
        }
    }
    Ok(Some(reports))
}

#[cfg(test)]
mod tests {
    use perturb_common::abi::Event;

    use super::{Fault, Look, Place, judge, merge};
    use crate::status::{
        counts::tests::{none, only},
        read::tests::report,
    };

    fn look(event: Option<Event>, at_rest: bool) -> Look {
        let report = report(&event.map_or_else(none, only));
        Look {
            reports: [(report.id.clone(), report)].into(),
            at_rest,
        }
    }

    fn fault(place: Place, packets: u64) -> Fault {
        Fault { place, packets }
    }

    #[test]
    fn what_is_unaccounted_for_counts_at_rest() {
        let before = look(None, true);
        let lost = look(Some(Event::Captured), true);
        assert_eq!(judge(&before, &lost), [fault(Place::Unaccounted, 100)]);
        assert_eq!(judge(&lost, &lost), []);
        assert_eq!(judge(&before, &look(Some(Event::Captured), false)), []);
        assert_eq!(judge(&look(None, false), &lost), []);
    }

    #[test]
    fn what_ends_meanwhile_is_a_fault() {
        assert_eq!(
            judge(&look(None, true), &Look::default()),
            [fault(Place::Ended, 0)]
        );
        assert_eq!(judge(&Look::default(), &look(Some(Event::Horizon), true)), []);
    }

    #[test]
    fn faults_of_one_place_are_one() {
        let mut all = vec![fault(Place::Pacer, 1)];
        merge(&mut all, vec![fault(Place::Pacer, 2), fault(Place::Horizon, 3)]);
        assert_eq!(all, [fault(Place::Pacer, 3), fault(Place::Horizon, 3)]);
    }
}
