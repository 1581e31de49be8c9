//! Many machines that do the same at once.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::{mpsc, watch};

use crate::{
    compared::Compared,
    link::{Failure, Phase, tend},
    way::Way,
    words::Order,
};

/// How far a machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It is being reached.
    Called,
    /// The same perturb answers there.
    Reached,
    /// It emulates.
    Up,
    /// Its timelines have their beginning.
    Timed,
    /// It does nothing any more.
    Gone,
}

/// What is heard of a machine.
#[derive(Debug)]
pub enum What {
    /// The same perturb answers there, with such a clock.
    Reached(Compared),
    /// It emulates.
    Up,
    /// Its timelines have their beginning.
    Timed,
    /// A line of what its command prints.
    Printed(String),
    /// A message.
    Said(String),
    /// It is done, or has failed.
    Gone(Result<(), Failure>),
}

/// What is heard, and of whom.
#[derive(Debug)]
pub struct Heard {
    /// The machine.
    pub host: String,
    /// What is heard of it.
    pub what: What,
}

/// Machines that are led from here. Dropped, it leaves them to end by themselves.
#[derive(Debug)]
pub struct Crew {
    phase: watch::Sender<Phase>,
    heard: mpsc::UnboundedReceiver<Heard>,
    stages: BTreeMap<String, Stage>,
}

impl Crew {
    /// Reaches all of them at once; they wait for [`Self::begin`], and then do what is ordered of each. To be called inside a runtime.
    #[must_use]
    pub fn call(way: &Way, orders: BTreeMap<String, Order>) -> Self {
        let (phase, _) = watch::channel(Phase::Reach);
        let (tell, heard) = mpsc::unbounded_channel();
        let stages = orders.keys().map(|host| (host.clone(), Stage::Called)).collect();
        for (host, order) in orders {
            let way = way.clone();
            let (phase, tell) = (phase.subscribe(), tell.clone());
            tokio::spawn(async move {
                // Nobody listens any more: the crew is gone.
                let say = |what| {
                    let _ = tell.send(Heard {
                        host: host.clone(),
                        what,
                    });
                };
                say(What::Gone(tend(&host, &way, &order, phase, &say).await));
            });
        }
        Self { phase, heard, stages }
    }

    /// They do what is ordered; those that are not reached yet, once they are.
    pub fn begin(&self) {
        self.phase.send_replace(Phase::Work);
    }

    /// Those that are up do this, too: its profile's timelines begin at an instant of this machine's clock, ns since 1970.
    pub fn time(&self, order: Order, start: u64) {
        self.phase.send_replace(Phase::Time(Arc::new(order), start));
    }

    /// They end it.
    pub fn end(&self) {
        self.phase.send_replace(Phase::End);
    }

    /// The next that is heard; nothing once all are gone. It may be dropped and called again.
    pub async fn next(&mut self) -> Option<Heard> {
        let heard = self.heard.recv().await?;
        let stage = match heard.what {
            What::Reached(_) => Stage::Reached,
            What::Up => Stage::Up,
            What::Timed => Stage::Timed,
            What::Gone(_) => Stage::Gone,
            What::Printed(_) | What::Said(_) => return Some(heard),
        };
        self.stages.insert(heard.host.clone(), stage);
        Some(heard)
    }

    /// Whether all are as far, or gone.
    #[must_use]
    pub fn are(&self, stage: Stage) -> bool {
        self.stages.values().all(|&one| one >= stage)
    }

    /// Those that are not as far.
    pub fn before(&self, stage: Stage) -> impl Iterator<Item = &str> {
        let all = self.stages.iter();
        all.filter(move |&(_, one)| *one < stage)
            .map(|(host, _)| host.as_str())
    }

    /// Those at this stage.
    pub fn at(&self, stage: Stage) -> impl Iterator<Item = &str> {
        let all = self.stages.iter();
        all.filter(move |&(_, one)| *one == stage)
            .map(|(host, _)| host.as_str())
    }
}
