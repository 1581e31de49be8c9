//! Which placement of N processes on M processors is fastest: LBF run over many of them. The paper
//! names it as future work.
//!
//! Processors of one speed are alike, so placements that differ in their names only count once. If all
//! of them together cost no more than the budget (events times placements), all are tried. Otherwise a
//! search: it starts from the placement of the input, from the longest-processing-time rule (by CPU
//! time), from contiguous blocks and from round robin; from each it moves one process or swaps two,
//! taking every change that is faster, until none is (a local optimum); then it starts again from
//! random placements while the budget lasts. The search is seeded, so it can be repeated, but it does
//! not prove that nothing is faster.

use std::collections::HashSet;

use perturb_common::fate::{Purpose, draw};

use super::engine::{PredictionError, Predictor};
use super::event::Event;
use super::input::Scenario;

/// What to search for.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Relative speed of each processor.
    pub speeds: Vec<f64>,
    /// Events that may be simulated in all.
    pub budget: u64,
    /// How many placements to return.
    pub best: usize,
    /// For the random starts.
    pub seed: u64,
}

/// One placement and its prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// The processor of every process, by process index.
    pub groups: Vec<u32>,
    /// Predicted time of the program, in µs.
    pub program_time: f64,
}

/// The fastest placements found.
#[derive(Clone, Debug, PartialEq)]
pub struct Suggestion {
    /// From the fastest on.
    pub ranked: Vec<Ranked>,
    /// Placements tried.
    pub tried: u64,
    /// Whether these were all.
    pub exhaustive: bool,
}

/// Why nothing can be suggested.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SuggestError {
    /// No processor.
    #[error("no processors to place on; give at least one")]
    NoProcessors,
    /// A speed that is not positive.
    #[error("processor speed {speed}: must be finite and above 0")]
    Speed {
        /// The speed.
        speed: f64,
    },
    /// Placements with shared processors need the local table.
    #[error("network.local: missing; placements that share a processor need the times inside one")]
    NoLocal,
    /// Placements with several processors need the remote table.
    #[error("network.remote: missing; placements over several processors need the times between them")]
    NoRemote,
    /// The events themselves.
    #[error(transparent)]
    Prediction(#[from] PredictionError),
}

/// Predicts one placement of the scenario's processes.
///
/// # Errors
/// When the events do not fit together.
pub fn predict(scenario: &Scenario, events: &[Event]) -> Result<f64, PredictionError> {
    let mut predictor = Predictor::new(scenario);
    for event in events {
        predictor.push(*event)?;
        while predictor.advance().is_some() {}
    }
    predictor.end_of_events();
    while predictor.advance().is_some() {}
    predictor.finish().map(|prediction| prediction.program_time)
}

/// Ranks placements of the scenario's processes; `told` how many are tried, and of how many at most.
///
/// # Errors
/// When there is nothing to place on, a table is missing, or the events do not fit together.
pub fn suggest(
    scenario: &Scenario,
    events: &[Event],
    task: &Task,
    told: &dyn Fn(u64, u64),
) -> Result<Suggestion, SuggestError> {
    let (processes, processors) = (scenario.placement.processes(), task.speeds.len());
    if processors == 0 {
        return Err(SuggestError::NoProcessors);
    }
    if let Some(speed) = task
        .speeds
        .iter()
        .find(|speed| !speed.is_finite() || **speed <= 0.0)
    {
        return Err(SuggestError::Speed { speed: *speed });
    }
    if scenario.local.is_none() && processes > 1 {
        return Err(SuggestError::NoLocal);
    }
    if scenario.remote.is_none() && processors > 1 {
        return Err(SuggestError::NoRemote);
    }
    let mut search = Search {
        scenario,
        events,
        task,
        classes: classes(&task.speeds),
        affordable: (task.budget / (events.len() as u64).max(1)).max(1),
        told,
        tried: HashSet::new(),
        ranked: Vec::new(),
    };
    let all = search.count(processes);
    let exhaustive = all <= search.affordable;
    search.affordable = search.affordable.min(all);
    if exhaustive {
        search.enumerate(&mut Vec::with_capacity(processes), processes)?;
    } else {
        search.climb(processes)?;
    }
    Ok(Suggestion {
        ranked: search.ranked,
        tried: search.tried.len() as u64,
        exhaustive,
    })
}

/// For each processor the first one of the same speed.
fn classes(speeds: &[f64]) -> Vec<u32> {
    speeds
        .iter()
        .map(|speed| speeds.iter().position(|other| other == speed).unwrap_or_default() as u32)
        .collect()
}

struct Search<'s> {
    scenario: &'s Scenario,
    events: &'s [Event],
    task: &'s Task,
    classes: Vec<u32>,
    affordable: u64,
    told: &'s dyn Fn(u64, u64),
    tried: HashSet<Vec<u32>>,
    ranked: Vec<Ranked>,
}

impl Search<'_> {
    /// Number of placements up to renaming of alike processors, or anything above what is affordable.
    fn count(&self, processes: usize) -> u64 {
        // By the number of processors in use per class: a process goes to one of those, or to a new one.
        let mut sizes: Vec<(u32, u32)> = Vec::new();
        for class in &self.classes {
            match sizes.iter_mut().find(|(known, _)| known == class) {
                Some((_, size)) => *size += 1,
                None => sizes.push((*class, 1)),
            }
        }
        let mut states = std::collections::HashMap::from([(vec![0_u32; sizes.len()], 1_u64)]);
        for _ in 0..processes {
            let mut next = std::collections::HashMap::new();
            for (used, ways) in states {
                for class in 0..sizes.len() {
                    let old = ways.saturating_mul(u64::from(used[class]));
                    let entry = next.entry(used.clone()).or_insert(0_u64);
                    *entry = entry.saturating_add(old);
                    if used[class] < sizes[class].1 {
                        let mut more = used.clone();
                        more[class] += 1;
                        let entry = next.entry(more).or_insert(0_u64);
                        *entry = entry.saturating_add(ways);
                    }
                }
            }
            states = next;
            let total = states.values().fold(0_u64, |sum, ways| sum.saturating_add(*ways));
            // The number never falls with more processes.
            if total > self.affordable {
                return total;
            }
        }
        states.values().fold(0_u64, |sum, ways| sum.saturating_add(*ways))
    }

    /// The same placement with alike processors renamed in order of first use.
    fn canonical(&self, groups: &[u32]) -> Vec<u32> {
        let mut names = vec![u32::MAX; self.classes.len()];
        let mut taken = vec![false; self.classes.len()];
        groups
            .iter()
            .map(|&group| {
                let group = group as usize;
                if names[group] == u32::MAX {
                    let free = (0..self.classes.len())
                        .find(|other| self.classes[*other] == self.classes[group] && !taken[*other]);
                    let free = free.unwrap_or(group);
                    taken[free] = true;
                    names[group] = free as u32;
                }
                names[group]
            })
            .collect()
    }

    /// Every placement, in canonical form.
    fn enumerate(&mut self, groups: &mut Vec<u32>, processes: usize) -> Result<(), SuggestError> {
        if groups.len() == processes {
            self.time(groups)?;
            return Ok(());
        }
        let mut new_in_class = Vec::new();
        for processor in 0..self.classes.len() as u32 {
            if !groups.contains(&processor) {
                let class = self.classes[processor as usize];
                if new_in_class.contains(&class) {
                    continue;
                }
                new_in_class.push(class);
            }
            groups.push(processor);
            self.enumerate(groups, processes)?;
            groups.pop();
        }
        Ok(())
    }

    /// The predicted time of a placement; infinite if it was tried before.
    fn time(&mut self, groups: &[u32]) -> Result<f64, SuggestError> {
        let canonical = self.canonical(groups);
        if !self.tried.insert(canonical.clone()) {
            return Ok(f64::INFINITY);
        }
        (self.told)(self.tried.len() as u64 - 1, self.affordable);
        let mut scenario = self.scenario.clone();
        scenario.placement = self
            .scenario
            .placement
            .moved(canonical.clone(), self.task.speeds.clone());
        let program_time = predict(&scenario, self.events)?;
        let place = self
            .ranked
            .partition_point(|known| known.program_time <= program_time);
        if place < self.task.best {
            self.ranked.insert(
                place,
                Ranked {
                    groups: canonical,
                    program_time,
                },
            );
            self.ranked.truncate(self.task.best);
        }
        Ok(program_time)
    }

    fn spent(&self) -> bool {
        self.tried.len() as u64 >= self.affordable
    }

    /// Local search from several starts.
    fn climb(&mut self, processes: usize) -> Result<(), SuggestError> {
        let processors = self.classes.len();
        let mut starts = vec![
            self.longest_first(processes),
            (0..processes)
                .map(|process| (process * processors / processes.max(1)) as u32)
                .collect(),
            (0..processes)
                .map(|process| (process % processors) as u32)
                .collect(),
        ];
        let given = self.scenario.placement.groups();
        if given.iter().all(|group| (*group as usize) < processors) {
            starts.insert(0, given.to_vec());
        }
        let mut random = 0_u64;
        let mut fruitless = 0;
        // Ends even where the budget outlasts the placements that differ.
        while !self.spent() && fruitless < 100 {
            let start = if starts.is_empty() {
                random += 1;
                (0..processes as u64)
                    .map(|process| {
                        (draw(self.task.seed, random, process, Purpose::Jitter) % processors as u64) as u32
                    })
                    .collect()
            } else {
                starts.remove(0)
            };
            let before = self.tried.len();
            self.climb_from(start)?;
            fruitless = if self.tried.len() == before {
                fruitless + 1
            } else {
                0
            };
        }
        Ok(())
    }

    fn climb_from(&mut self, mut groups: Vec<u32>) -> Result<(), SuggestError> {
        let mut best = self.time(&groups)?;
        if best.is_infinite() {
            return Ok(());
        }
        let mut improves = true;
        while improves {
            improves = false;
            for process in 0..groups.len() {
                for processor in 0..self.classes.len() as u32 {
                    let home = groups[process];
                    if processor == home {
                        continue;
                    }
                    if self.spent() {
                        return Ok(());
                    }
                    groups[process] = processor;
                    let time = self.time(&groups)?;
                    if time < best {
                        (best, improves) = (time, true);
                    } else {
                        groups[process] = home;
                    }
                }
                for other in process + 1..groups.len() {
                    if groups[other] == groups[process] {
                        continue;
                    }
                    if self.spent() {
                        return Ok(());
                    }
                    groups.swap(process, other);
                    let time = self.time(&groups)?;
                    if time < best {
                        (best, improves) = (time, true);
                    } else {
                        groups.swap(process, other);
                    }
                }
            }
        }
        Ok(())
    }

    /// The process with most CPU time first, each to the processor that would finish it soonest.
    fn longest_first(&self, processes: usize) -> Vec<u32> {
        let mut cpu = vec![0.0; processes];
        for event in self.events {
            cpu[event.process as usize] += event.cpu;
        }
        let mut order: Vec<usize> = (0..processes).collect();
        order.sort_by(|a, b| cpu[*b].total_cmp(&cpu[*a]));
        let mut load = vec![0.0; self.classes.len()];
        let mut groups = vec![0; processes];
        for process in order {
            let finish = |processor: &usize| (load[*processor] + cpu[process]) / self.task.speeds[*processor];
            let soonest = (0..load.len())
                .min_by(|a, b| finish(a).total_cmp(&finish(b)))
                .unwrap_or_default();
            load[soonest] += cpu[process];
            groups[process] = soonest as u32;
        }
        groups
    }
}

#[cfg(test)]
mod tests;
