//! `run --on … --hosts …`: private hosts on this machine and others, and one network between them, which this machine emulates.

use std::{
    collections::BTreeMap,
    env,
    hash::{BuildHasher as _, RandomState},
    pin::Pin,
    process::ExitStatus,
    str::FromStr,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use perturb_containers::Selector;
use perturb_emulator::lab::{
    self, MAX_HOSTS,
    away::{self, Away},
    ends::{Accounts, Passages},
    guest::Kind,
    lodge::{Lodged, Lodging},
    run::Machines,
};
use perturb_machines::{On, Order, Stage, Way};
use perturb_profile::{Loaded, Packed, Profile, Size};
use tokio::time::timeout;

use super::{PATIENCE, Reach, lead::Led};
use crate::cli::Contradiction;

/// Until it is said what is waited for.
const AT_ONCE: Duration = Duration::from_secs(2);

/// How many hosts there are, and what they are: in all, or here and on each of the other machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counts(Vec<Part>);

/// How many on a machine, and what they are.
type Part = (u32, Kind);

impl Counts {
    /// In all.
    pub(crate) fn total(&self) -> u32 {
        self.0.iter().map(|(count, _)| count).sum()
    }

    /// Whether some are no private hosts.
    pub(crate) fn has_guests(&self) -> bool {
        self.0.iter().any(|(_, kind)| *kind != Kind::Private)
    }

    /// Refuses numbers for several machines where there is one.
    pub(crate) fn of_one_machine(&self) -> Result<u32, Contradiction> {
        match *self.0 {
            [(all, _)] => Ok(all),
            _ => Err(Contradiction(
                "--hosts has a number for each machine; name the others by --on, or give one number",
            )),
        }
    }

    /// By machine, this one first: as they were given, or evenly.
    fn each(&self, machines: usize) -> Result<Vec<Part>, Contradiction> {
        let [(all, _)] = *self.0 else {
            if self.0.len() != machines {
                return Err(Contradiction(
                    "--hosts needs a number for each machine: this one first, then the others of --on",
                ));
            }
            return Ok(self.0.clone());
        };
        let count = u32::try_from(machines).unwrap_or(u32::MAX);
        if all < count {
            return Err(Contradiction(
                "--hosts is too few: this machine and each other of --on needs one",
            ));
        }
        Ok(lab::evenly(all, count)
            .map(|count| (count, Kind::Private))
            .collect())
    }
}

impl FromStr for Counts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Option<Vec<Part>> = text.split(',').map(part).collect();
        let counts = parts
            .map(Self)
            .filter(|counts| (2..=MAX_HOSTS).contains(&counts.total()))
            .ok_or_else(|| {
                format!(
                    "2 to {MAX_HOSTS} hosts: 8, or here and on each of the other machines, 2,3,machine,container=web+db"
                )
            })?;
        match counts.0.first() {
            Some((_, Kind::Private)) => Ok(counts),
            _ => {
                Err("the first is this machine, which has private hosts: give it a number, 1,machine".into())
            }
        }
    }
}

fn part(text: &str) -> Option<Part> {
    if text == "machine" {
        return Some((1, Kind::Machine));
    }
    if let Some(names) = text.strip_prefix("container=") {
        let is_name = |name: &&str| matches!(name.parse(), Ok(Selector::Name(_)));
        let names: Vec<&str> = names.split('+').collect();
        let are_names = names.iter().all(is_name);
        let kind = Kind::Containers(names.iter().map(|&name| name.to_owned()).collect());
        return are_names.then_some((u32::try_from(names.len()).ok()?, kind));
    }
    let count = text.parse().ok().filter(|count| (1..=MAX_HOSTS).contains(count));
    Some((count?, Kind::Private))
}

/// Hosts of another machine, before they are there.
struct Planned {
    machine: String,
    hosts: Vec<u32>,
    kind: Kind,
    way: away::Way,
}

/// Which hosts are where.
pub(crate) struct Spread {
    others: Vec<Planned>,
    way: Way,
    total: u32,
    profile: Packed,
}

impl Spread {
    /// Hosts on this machine and on those of `on`. Without `mtu` the profile gets one that fits into tunnels.
    ///
    /// # Errors
    /// If there is no way to a machine, or what goes there has no room.
    pub(crate) fn plan(on: &On, reach: &Reach, counts: &Counts, loaded: &mut Loaded) -> anyhow::Result<Self> {
        // Two networks may have hosts on one machine.
        let id = (RandomState::new().hash_one(0) as u32 & 0xffff) << 8;
        let mut ways = Vec::new();
        for machine in on.hosts()?.names() {
            let name = machine.rsplit_once('@').map_or(machine, |(_, host)| host);
            if (1..=counts.total()).any(|number| lab::name(number) == name) {
                bail!("a machine of --on is called {name}, as a host is: give it another name in /etc/hosts");
            }
            let way = away::Way::to(name, id)?;
            // In a job, this machine is one of its machines.
            if !way.is_here() {
                ways.push((machine.to_owned(), way));
            }
        }
        if ways.is_empty() {
            bail!("all machines of --on are this one; leave it out");
        }
        fit(&mut loaded.profile, &ways)?;
        let each = counts.each(1 + ways.len())?;
        let mut first = 1 + each.first().map_or(0, |(count, _)| *count);
        let others = ways
            .into_iter()
            .zip(each.into_iter().skip(1))
            .map(|((machine, way), (count, kind))| {
                let hosts = (first..first + count).collect();
                first += count;
                Planned {
                    machine,
                    hosts,
                    kind,
                    way,
                }
            });
        Ok(Self {
            others: others.collect(),
            way: reach.way(on),
            total: counts.total(),
            profile: loaded.packed()?,
        })
    }

    /// Has the hosts made on the other machines, and runs a command between all of them. How it ended.
    ///
    /// # Errors
    /// If a machine cannot have its hosts, or is lost.
    pub(crate) fn lead(&self, request: lab::run::Request<'_>) -> anyhow::Result<Option<ExitStatus>> {
        // Connections need signs of life while this thread makes hosts, so they have one of their own.
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build();
        runtime
            .context("starting the runtime")?
            .block_on(self.led(request))
    }

    async fn led(&self, request: lab::run::Request<'_>) -> anyhow::Result<Option<ExitStatus>> {
        let orders = self
            .others
            .iter()
            .map(|one| Ok((one.machine.clone(), self.order(one)?)));
        let mut led = Led::call(&self.way, orders.collect::<anyhow::Result<_>>()?);
        let done = match self.begin(&mut led).await {
            Ok(aways) => {
                let machines = &mut led;
                lab::run::run_spread(request, Some(lab::run::Spread { aways, machines })).await
            }
            Err(error) => Err(error),
        };
        if done.is_err() {
            led.end().await;
        }
        done
    }

    fn order(&self, planned: &Planned) -> anyhow::Result<Order> {
        let lodging = Lodging {
            hosts: planned.hosts.clone(),
            kind: planned.kind.clone(),
            count: self.total,
            way: planned.way.turned(),
        };
        let lodging = serde_json::to_string(&lodging).context("printing what a machine is to do")?;
        Ok(Order {
            words: ["lodge".to_owned(), "--lodging".to_owned(), lodging].into(),
            profile: Some(self.profile.clone()),
            patience: PATIENCE,
        })
    }

    /// Until all machines have their hosts.
    async fn begin(&self, led: &mut Led) -> anyhow::Result<Vec<Away>> {
        for stage in [Stage::Reached, Stage::Up] {
            led.until(stage, false).await;
            if led.crew.at(Stage::Gone).next().is_some() {
                bail!("failed on {}: the command was not run", led.gone());
            }
            led.crew.begin();
        }
        self.others
            .iter()
            .map(|one| self.away(one, &led.printed))
            .collect()
    }

    fn away(&self, planned: &Planned, printed: &BTreeMap<String, String>) -> anyhow::Result<Away> {
        let machine = planned.machine.clone();
        let text = printed.get(&machine).map_or("", String::as_str);
        let lodged: Lodged =
            serde_json::from_str(text).with_context(|| format!("{machine}: where its hosts are"))?;
        let way = if self.way.push {
            self.way.to_program(&lodged.program.display().to_string())
        } else {
            self.way.clone()
        };
        // Options of ssh may name files from here.
        let here = env::current_dir().context("finding the current directory")?;
        let command = |(index, &host): (usize, &u32)| {
            let within = lodged.within.get(index);
            let within = within.map_or(String::new(), |process| format!(" --within {process}"));
            let line = format!(
                "exec {} agent --lodge {}{within} {}",
                way.perturb,
                lodged.process,
                lab::name(host)
            );
            let words = way.words(&machine, &line).into_iter();
            let from = ["env".to_owned(), format!("--chdir={}", here.display())];
            from.into_iter().chain(words).collect()
        };
        Ok(Away {
            commands: planned.hosts.iter().enumerate().map(command).collect(),
            machine,
            hosts: planned.hosts.clone(),
            way: planned.way,
        })
    }
}

impl Led {
    /// The machines that do nothing any more, which an error names.
    fn gone(&self) -> String {
        self.crew.at(Stage::Gone).collect::<Vec<_>>().join(", ")
    }
}

impl Machines for Led {
    fn lost(&mut self) -> Pin<Box<dyn Future<Output = anyhow::Error> + '_>> {
        Box::pin(async {
            self.until(Stage::Gone, false).await;
            anyhow!("hosts are lost ({}): the command was ended", self.gone())
        })
    }

    fn end(&mut self) -> Pin<Box<dyn Future<Output = Accounts> + '_>> {
        Box::pin(async {
            self.crew.end();
            let soon = timeout(AT_ONCE, self.until(Stage::Gone, true)).await;
            if soon.is_err() {
                let left = self.crew.before(Stage::Gone).collect::<Vec<_>>().join(", ");
                log::info!("waiting until {left} has ended its hosts; after Ctrl-C it does so by itself");
                self.until(Stage::Gone, true).await;
            }
            // Behind where the hosts were: `perturb lodge`.
            let said = self.crew.at(Stage::Gone).map(|machine| {
                let text = self.printed.get(machine);
                let line = text.and_then(|text| text.lines().nth(1));
                let passed: Option<Passages> = line.and_then(|line| serde_json::from_str(line).ok());
                let has_failed = self.failed.iter().any(|failed| failed == machine);
                if text.is_some() && passed.is_none() && !has_failed {
                    log::warn!(
                        "{machine}: it has not said how many packets passed its tunnels, so do not trust the result"
                    );
                }
                (machine.to_owned(), passed)
            });
            said.collect()
        })
    }
}

/// Lowers the hosts' MTU to what tunnels take whole, unless the profile says one.
fn fit(profile: &mut Profile, ways: &[(String, away::Way)]) -> anyhow::Result<()> {
    let before = profile.mtu();
    if profile.mtu.is_none() {
        for (machine, way) in ways {
            let fits = way.fits(profile.mtu())?;
            if fits < profile.mtu() && u64::from(fits) >= *Profile::MTU.start() {
                profile.mtu = Some(Size::from_bytes(fits.into()));
                log::info!(
                    "hosts' packets have at most {fits} bytes, not {before}: no more fits into a tunnel to {machine}"
                );
            }
        }
    }
    for (_, way) in ways {
        way.must_fit(profile.mtu())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each(text: &str, machines: usize) -> Option<Vec<u32>> {
        let each = text.parse::<Counts>().ok()?.each(machines).ok()?;
        Some(each.into_iter().map(|(count, _)| count).collect())
    }

    #[test]
    fn hosts_are_shared_out_evenly_or_as_it_is_said() {
        assert_eq!(each("8", 3), Some(vec![3, 3, 2]));
        assert_eq!(each("2,3,3", 3), Some(vec![2, 3, 3]));
        assert_eq!(each("64", 1), Some(vec![64]));
        for (text, machines) in [
            ("2", 3),
            ("2,3", 3),
            ("1", 1),
            ("0,4", 2),
            ("60,5", 2),
            ("a", 1),
            ("", 1),
        ] {
            assert_eq!(each(text, machines), None, "{text}");
        }
    }

    #[test]
    fn machines_and_containers_are_hosts_but_not_here() {
        assert_eq!(each("2,machine,container=web+db", 3), Some(vec![2, 1, 2]));
        let Counts(parts) = "1,container=web+db".parse().unwrap();
        assert_eq!(
            parts[1].1,
            Kind::Containers(vec!["web".to_owned(), "db".to_owned()])
        );
        for text in ["machine", "machine,1", "container=a+b"] {
            let said = text.parse::<Counts>().unwrap_err();
            assert!(
                text == "machine" || said.contains("give it a number"),
                "{text}: {said}"
            );
        }
        for text in [
            "1,container=",
            "1,container=a+",
            "1,container=label=x",
            "1,machines",
        ] {
            assert!(text.parse::<Counts>().is_err(), "{text}");
        }
    }
}
