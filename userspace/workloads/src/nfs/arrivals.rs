//! When requests are meant to start.
//!
//! Model: open arrivals are a Poisson process given its count: exactly rate times time arrivals,
//! placed like independent uniform instants. (Exponential intervals are drawn and scaled so that they
//! fill the time: given their sum, arrivals of a Poisson process are uniform order statistics.) Locally
//! this is a Poisson process; over the whole run the rate has no sampling error.
//! A closed process thinks between calls, uniformly between half and one and a half of a mean that
//! is set anew at every check, so that it makes up for what it is behind (SFS' rate control).

use std::time::{Duration, Instant};

use perturb_stats::SplitMix64;

/// Instants of a Poisson process in a span of time, in order.
#[derive(Clone, Debug)]
pub(super) struct Poisson {
    random: SplitMix64,
    start: Instant,
    at: f64,
    scale: f64,
    left: u64,
}

impl Poisson {
    pub(super) fn new(start: Instant, span: Duration, count: u64, seed: u64) -> Self {
        let random = SplitMix64::new(seed);
        let mut all = random.clone();
        let sum: f64 = (0..=count).map(|_| all.exponential(1.0)).sum();
        Self {
            random,
            start,
            at: 0.0,
            scale: span.as_secs_f64() / sum,
            left: count,
        }
    }
}

impl Iterator for Poisson {
    type Item = Instant;

    fn next(&mut self) -> Option<Instant> {
        self.left = self.left.checked_sub(1)?;
        self.at += self.random.exponential(self.scale);
        Some(self.start + Duration::from_secs_f64(self.at))
    }
}

/// Calls that a period may have beyond those due, so that chance does not hold a process up.
const SURPLUS: f64 = 1.5;

/// The rate control of one closed process.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Calls per second.
    rate: f64,
    /// Mean think time, seconds.
    think: f64,
    /// Since when calls are counted.
    since: Instant,
    calls: f64,
    checked: Instant,
    /// When the next check is due, and how many calls may be made before: a process that was held up makes
    /// up for it in a period, and not in a burst.
    allowed: (Instant, f64),
    /// Calls and time spent in them since the last check.
    lately: (f64, f64),
}

impl Pace {
    pub(super) fn new(rate: f64, now: Instant) -> Self {
        Self {
            rate,
            think: 1.0 / rate,
            since: now,
            calls: 0.0,
            checked: now,
            allowed: (now, f64::INFINITY),
            lately: (0.0, 0.0),
        }
    }

    /// Forgets what it is behind or ahead: the run begins.
    pub(super) fn restart(&mut self, now: Instant) {
        self.since = now;
        self.calls = 0.0;
    }

    /// Counts an operation of so many calls that took `busy` in all.
    pub(super) fn count(&mut self, calls: usize, busy: Duration) {
        self.calls += calls as f64;
        self.lately.0 += calls as f64;
        self.lately.1 += busy.as_secs_f64();
    }

    /// Sets the think time so that the count is right after the next `period`.
    pub(super) fn check(&mut self, now: Instant, period: Duration) {
        if now.saturating_duration_since(self.checked) < period {
            return;
        }
        let elapsed = now.saturating_duration_since(self.since).as_secs_f64();
        let until = now + period;
        let period = period.as_secs_f64();
        let due = (elapsed + period) * self.rate - self.calls;
        let busy = if self.lately.0 > 0.0 {
            self.lately.1 / self.lately.0
        } else {
            0.0
        };
        // At least a tenth of the rate, so that a process that is ahead does not fall asleep.
        let interval = period / due.max(0.1 * self.rate * period);
        self.think = (interval - busy).max(0.0);
        self.checked = now;
        self.allowed = (until, SURPLUS * due.max(1.0));
        self.lately = (0.0, 0.0);
    }

    /// The instant before which no further call may be made.
    pub(super) fn not_before(&self) -> Option<Instant> {
        let (until, calls) = self.allowed;
        (self.lately.0 >= calls).then_some(until)
    }

    /// How long to think after an operation of so many calls.
    pub(super) fn think(&self, calls: usize, random: &mut SplitMix64) -> Duration {
        Duration::from_secs_f64(self.think * calls as f64 * (0.5 + random.fraction()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_arrivals_are_all_there_and_exponential() {
        let start = Instant::now();
        let span = Duration::from_secs(100);
        let arrivals: Vec<f64> = Poisson::new(start, span, 50_000, 3)
            .map(|at| at.duration_since(start).as_secs_f64())
            .collect();
        assert_eq!(arrivals.len(), 50_000);
        assert!(arrivals.is_sorted() && arrivals[49_999] < 100.0);
        let intervals: Vec<f64> = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = intervals.iter().sum::<f64>() / intervals.len() as f64;
        let variance = intervals.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / intervals.len() as f64;
        assert!((mean - 0.002).abs() < 2e-5, "{mean}");
        // An exponential's standard deviation is its mean.
        assert!(
            (variance.sqrt() / mean - 1.0).abs() < 0.03,
            "{}",
            variance.sqrt() / mean
        );
    }

    /// A process whose calls take 3 ms, asked for 100 a second: 1000 calls in ten seconds, within 1 %.
    #[test]
    fn the_pace_is_held() {
        let start = Instant::now();
        let (mut now, mut random) = (start, SplitMix64::new(8));
        let mut pace = Pace::new(100.0, now);
        let mut calls = 0;
        while now < start + Duration::from_secs(10) {
            let busy = Duration::from_millis(3);
            let group = 1 + random.below(3) as usize;
            now += busy * group as u32;
            calls += group;
            pace.count(group, busy * group as u32);
            now += pace.think(group, &mut random);
            pace.check(now, Duration::from_secs(1));
        }
        assert!((990..=1010).contains(&calls), "{calls}");
    }

    /// Calls of 1 ms, asked for 10 a second; one call takes two seconds. Without a limit the process would
    /// think no more until the next check, and make a thousand calls.
    #[test]
    fn a_stall_is_made_up_for_without_a_burst() {
        let start = Instant::now();
        let (mut now, mut random) = (start, SplitMix64::new(8));
        let mut pace = Pace::new(10.0, now);
        let (mut calls, mut stalled) = (0, false);
        while now < start + Duration::from_secs(20) {
            let stall = !stalled && now > start + Duration::from_secs(5);
            stalled |= stall;
            let busy = Duration::from_millis(if stall { 2_000 } else { 1 });
            now += busy;
            calls += 1;
            pace.count(1, busy);
            now += pace.think(1, &mut random);
            now = pace.not_before().map_or(now, |instant| now.max(instant));
            pace.check(now, Duration::from_secs(1));
        }
        assert!((195..=205).contains(&calls), "{calls}");
    }

    #[test]
    fn a_slow_server_takes_all_the_thinking_away() {
        let start = Instant::now();
        let mut pace = Pace::new(100.0, start);
        pace.count(10, Duration::from_secs(1));
        pace.check(start + Duration::from_secs(1), Duration::from_secs(1));
        assert_eq!(pace.think(1, &mut SplitMix64::new(1)), Duration::ZERO);
    }
}
