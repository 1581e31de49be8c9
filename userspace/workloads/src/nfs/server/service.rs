//! Service times: the queueing model of an NFS server made flesh.
//!
//! Model (Martin 1999, section 5.3): a request passes a delay centre (fixed time D, no queue), then
//! the processor (one first-in-first-out server), then with the cache's miss probability one of m
//! disks (one queue before all of them). With Poisson arrivals and exponential service times these
//! are M/M/1 and M/M/m. The time at which a request leaves is computed when it arrives,
//! by Lindley's recursion on instants, so a late wake-up delays one reply and no other.
//! The delay centre is put *after* the queues here, which changes no response time and lets requests
//! join the queues in the order of their coming.
//! The cache is one of three. A probability. Or a least-recently-used set of 8 KiB blocks that requests
//! really touch; writes leave their block in it and do not wait for a disk (non-volatile memory).
//! Or a share of the working set, as Martin has it: requests that come at λ a second work on so many
//! bytes times λ, and find `cache / (bytes λ)` of them; λ is what came in the last whole second. So a
//! large server's cache can be emulated with a small data set. All requests are alike: writes wait, too.
//! The processor's time is waited for, or burnt (`burn`): then a request occupies a processor of this
//! machine, which whatever else runs there, such as an emulated network's overhead, shares with it.

use std::time::{Duration, Instant};

use lru::LruCache;
use perturb_stats::SplitMix64;

use super::{memory::Number, work::Work};

/// Bytes of a cache block.
pub(super) const CACHE_BLOCK: u64 = 8192;

/// How service times are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Always the mean.
    Fixed,
    /// Exponential with that mean: the M of M/M/1.
    #[default]
    Exponential,
}

/// A mean service time and its distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Service {
    /// The mean.
    pub mean: Duration,
    /// How it is spread.
    pub distribution: Distribution,
}

/// Which requests need a disk.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Cache {
    /// Each request is a hit with this probability.
    HitRatio(f64),
    /// Blocks touched lately are hits; so many bytes of them are kept.
    Bytes(u64),
    /// The cache over the working set is the probability of a hit.
    Share {
        /// Bytes of the cache.
        cache: u64,
        /// Bytes that are worked on for each request per second.
        working_set: u64,
    },
}

/// What a request costs.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ServiceModel {
    /// The delay centre D.
    pub fixed_delay: Duration,
    /// The processor, if it takes any time.
    pub cpu: Option<Service>,
    /// Whether the processor is really occupied for that time.
    #[serde(default)]
    pub burn: bool,
    /// The disks behind the cache, if there are any.
    pub disks: Option<Disks>,
    /// Where the random service times begin.
    pub seed: u64,
}

/// m equal disks and the cache before them.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Disks {
    /// How many, m >= 1.
    pub count: usize,
    /// Time of one of them for a request.
    pub service: Service,
    /// Which requests come to them.
    pub cache: Cache,
}

/// What a request touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Touch {
    pub(super) object: Number,
    /// First and last cache block of the data, or none if only the object itself is needed.
    pub(super) blocks: Option<(u64, u64)>,
    pub(super) writes: bool,
}

/// The queues' state.
pub(super) struct Queues {
    model: ServiceModel,
    random: SplitMix64,
    work: Option<Work>,
    cpu_free: Instant,
    /// When each disk is free.
    disks_free: Vec<Instant>,
    cached: Option<LruCache<(Number, Option<u64>), ()>>,
    pace: Pace,
}

/// How many requests came in the last whole second.
struct Pace {
    since: Instant,
    seen: u32,
    per_second: Option<f64>,
}

impl Pace {
    const SECOND: Duration = Duration::from_secs(1);

    /// Counts a request; the rate, once it is known.
    fn count(&mut self, now: Instant) -> Option<f64> {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed >= Self::SECOND {
            self.per_second = Some(f64::from(self.seen) / elapsed.as_secs_f64());
            (self.since, self.seen) = (now, 0);
        }
        self.seen += 1;
        self.per_second
    }
}

impl ServiceModel {
    /// Whether a request takes any time at all.
    #[must_use]
    pub fn is_instant(&self) -> bool {
        self.fixed_delay.is_zero() && self.cpu.is_none() && self.disks.is_none()
    }
}

impl Service {
    fn draw(&self, random: &mut SplitMix64) -> Duration {
        match self.distribution {
            Distribution::Fixed => self.mean,
            Distribution::Exponential => Duration::from_secs_f64(random.exponential(self.mean.as_secs_f64())),
        }
    }
}

impl Queues {
    pub(super) fn new(model: ServiceModel, now: Instant) -> Self {
        let cached = match model.disks.map(|disks| disks.cache) {
            Some(Cache::Bytes(bytes)) => {
                let blocks = usize::try_from(bytes / CACHE_BLOCK).unwrap_or(usize::MAX);
                std::num::NonZeroUsize::new(blocks).map(|_| LruCache::unbounded())
            }
            Some(Cache::HitRatio(_) | Cache::Share { .. }) | None => None,
        };
        Self {
            model,
            random: SplitMix64::new(model.seed),
            work: (model.burn && model.cpu.is_some()).then(Work::calibrate),
            cpu_free: now,
            disks_free: vec![now; model.disks.map_or(0, |disks| disks.count)],
            cached,
            pace: Pace {
                since: now,
                seen: 0,
                per_second: None,
            },
        }
    }

    /// When a request that comes now is answered. Burns the processor's time, if it is to be burnt.
    pub(super) fn departure(&mut self, now: Instant, touch: Option<Touch>) -> Instant {
        let mut at = now;
        if let Some(cpu) = self.model.cpu {
            let time = cpu.draw(&mut self.random);
            at = match &self.work {
                Some(work) => {
                    work.take(time);
                    Instant::now()
                }
                None => at.max(self.cpu_free) + time,
            };
            self.cpu_free = at;
        }
        if let Some(disks) = self.model.disks
            && self.misses(disks.cache, touch, now)
            && let Some(free) = self.disks_free.iter_mut().min()
        {
            at = at.max(*free) + disks.service.draw(&mut self.random);
            *free = at;
        }
        at + self.model.fixed_delay
    }

    fn misses(&mut self, cache: Cache, touch: Option<Touch>, now: Instant) -> bool {
        match cache {
            Cache::HitRatio(ratio) => self.random.fraction() >= ratio,
            Cache::Share { cache, working_set } => {
                let rate = self.pace.count(now).unwrap_or_default();
                self.random.fraction() * working_set as f64 * rate >= cache as f64
            }
            Cache::Bytes(bytes) => {
                // A request without an object, such as null, needs no disk.
                let Some(touch) = touch else { return false };
                let Some(cached) = &mut self.cached else {
                    return !touch.writes;
                };
                let data = touch
                    .blocks
                    .map(|(first, last)| first..=last)
                    .into_iter()
                    .flatten()
                    .map(Some);
                let mut missed = false;
                for block in std::iter::once(None).chain(data) {
                    missed |= cached.put((touch.object, block), ()).is_none();
                }
                while cached.len() as u64 > bytes / CACHE_BLOCK {
                    cached.pop_lru();
                }
                missed && !touch.writes
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn fixed(mean: Duration) -> Service {
        Service {
            mean,
            distribution: Distribution::Fixed,
        }
    }

    fn model(cpu: Option<Service>, disks: Option<Disks>) -> ServiceModel {
        ServiceModel {
            fixed_delay: Duration::ZERO,
            cpu,
            burn: false,
            disks,
            seed: 1,
        }
    }

    #[test]
    fn burnt_time_passes_before_the_answer() {
        let burning = ServiceModel {
            burn: true,
            ..model(Some(fixed(MILLI)), None)
        };
        let start = Instant::now();
        let mut queues = Queues::new(burning, start);
        let begun = Instant::now();
        for _ in 0..20 {
            let now = Instant::now();
            assert!(queues.departure(now, None) > now);
        }
        // A processor that has become faster since it was calibrated needs less.
        assert!(begun.elapsed() > 10 * MILLI, "{:?}", begun.elapsed());
    }

    #[test]
    fn the_processor_serves_in_order_and_rests_between() {
        let start = Instant::now();
        let mut queues = Queues::new(model(Some(fixed(MILLI)), None), start);
        assert_eq!(queues.departure(start, None), start + MILLI);
        assert_eq!(queues.departure(start, None), start + 2 * MILLI);
        assert_eq!(queues.departure(start + 10 * MILLI, None), start + 11 * MILLI);
    }

    #[test]
    fn m_disks_serve_m_requests_at_once() {
        let start = Instant::now();
        let disks = Disks {
            count: 2,
            service: fixed(5 * MILLI),
            cache: Cache::HitRatio(0.0),
        };
        let mut queues = Queues::new(model(None, Some(disks)), start);
        let departures = [0, 0, 0, 0].map(|_| queues.departure(start, None).duration_since(start) / 5);
        assert_eq!(departures, [MILLI, MILLI, 2 * MILLI, 2 * MILLI]);
    }

    #[test]
    fn the_cache_keeps_what_was_touched_last() {
        let start = Instant::now();
        // Four blocks: an object and one block of its data are two.
        let disks = Disks {
            count: 1,
            service: fixed(MILLI),
            cache: Cache::Bytes(4 * CACHE_BLOCK),
        };
        let mut queues = Queues::new(model(None, Some(disks)), start);
        let mut missed = |object, block, writes| {
            let touch = Touch {
                object,
                blocks: Some((block, block)),
                writes,
            };
            queues.misses(disks.cache, Some(touch), start)
        };
        assert!(missed(1, 0, false));
        assert!(!missed(1, 0, false));
        assert!(!missed(2, 0, true), "a write does not wait for the disk");
        assert!(!missed(2, 0, false), "and leaves its block behind");
        assert!(missed(3, 0, false));
        assert!(missed(1, 0, false), "pushed out by the third object");
    }

    /// 1 MB for each op/s and 128 MB: all hits up to 128 op/s, then 128/λ of them. Sample size 20 s, tolerance 0.02 and the
    /// first second.
    #[test]
    fn a_share_of_the_working_set_is_in_the_cache() {
        for (rate, hits) in [(100_u32, 1.0), (256, 0.5), (1000, 0.128)] {
            let start = Instant::now();
            let disks = Disks {
                count: 1,
                service: fixed(MILLI),
                cache: Cache::Share {
                    cache: 128_000_000,
                    working_set: 1_000_000,
                },
            };
            let mut queues = Queues::new(model(None, Some(disks)), start);
            let gap = Duration::from_secs(1) / rate;
            let missed = (0..21 * rate)
                .map(|number| queues.misses(disks.cache, None, start + gap * number))
                .skip(rate as usize + 1)
                .filter(|missed| *missed)
                .count();
            let seen = 1.0 - missed as f64 / f64::from(20 * rate);
            assert!((seen - hits).abs() < 0.02, "{rate}: {seen}, not {hits}");
        }
    }

    /// Mean response of M/M/1 is S/(1 - rho), of M/M/2 S/(1 - rho²) with rho the load of each.
    /// Sample size 1 000 000, tolerance 5 %.
    #[test]
    fn exponential_queues_are_m_m_1_and_m_m_m() {
        let service = Service {
            mean: MILLI,
            distribution: Distribution::Exponential,
        };
        let disks = Disks {
            count: 2,
            service,
            cache: Cache::HitRatio(0.0),
        };
        for (cpu, disks, servers) in [(Some(service), None, 1.0), (None, Some(disks), 2.0)] {
            for load in [0.3, 0.8] {
                let start = Instant::now();
                let mut queues = Queues::new(model(cpu, disks), start);
                let mut arrivals = SplitMix64::new(9);
                let (mut at, mut total, requests) = (start, 0.0, 1_000_000);
                for _ in 0..requests {
                    at += Duration::from_secs_f64(arrivals.exponential(0.001 / (servers * load)));
                    total += queues.departure(at, None).duration_since(at).as_secs_f64();
                }
                let seen = total / f64::from(requests) * 1000.0;
                let expected = if servers == 1.0 {
                    1.0 / (1.0 - load)
                } else {
                    1.0 / (1.0 - load * load)
                };
                assert!(
                    (seen / expected - 1.0).abs() < 0.05,
                    "{servers} at {load}: {seen}, not {expected}"
                );
            }
        }
    }
}
