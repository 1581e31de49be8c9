//! `run --marks`: a line whenever a step of the timeline takes effect. The programs need nobody for that: whoever marks a
//! step looks at the clock, as they do.

use std::{
    io::Write as _,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use perturb_clock::{both, now};
use perturb_emulator::{registry::Record, timeline::Clock};
use perturb_profile::{Marks, Profile, Start};

use crate::voice::Voice;

/// Lines for the steps of one second; of further ones it says how many they are.
const LINES: usize = 10;
/// How often it looks whether the first packet has come.
const LOOK: Duration = Duration::from_millis(10);
const SECOND: u64 = 1_000_000_000;

/// Marks a profile's steps from the first record on that it is shown, until it is dropped.
pub(crate) fn witness(profile: Option<Profile>) -> impl FnMut(&Record) {
    let (lasts, ended) = channel();
    let mut waits = profile.zip(Some(ended));
    move |record| {
        // It is dropped with this closure.
        let _: &Sender<()> = &lasts;
        let Some((profile, ended)) = waits.take() else {
            return;
        };
        let started = Clock::of(record).and_then(|clock| {
            let mark = move || {
                if let Err(error) = mark(&profile, &clock, &ended) {
                    log::warn!("no more steps are marked: {error:#}");
                }
            };
            Ok(thread::Builder::new().name("perturb-marks".into()).spawn(mark)?)
        });
        if let Err(error) = started {
            log::warn!("no steps are marked: {error:#}");
        }
    }
}

/// Until there are no more, or the emulation has ended.
fn mark(profile: &Profile, clock: &Clock, ended: &Receiver<()>) -> anyhow::Result<()> {
    let Some(marks) = Marks::of(profile) else {
        return Ok(());
    };
    let goes_on = |time| ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
    let began = match profile.timeline.start {
        Start::At(wall) => {
            let (now, wall_now) = both();
            i128::from(now) + i128::from(wall) - i128::from(wall_now)
        }
        Start::Apply | Start::FirstPacket => loop {
            if let Some(began) = clock.started()? {
                break began.into();
            }
            if !goes_on(LOOK) {
                return Ok(());
            }
        },
    };
    let since = || i128::from(now()) - began;
    // Whether the emulation goes on until then.
    let wait = |at: u64| {
        let left = u64::try_from(i128::from(at) - since()).unwrap_or(0);
        left == 0 || goes_on(Duration::from_nanos(left))
    };
    let say = |at: u64, what: &str| {
        let _ = writeln!(Voice, "{:.3} s  {what}", at as f64 / 1e9);
    };
    let mut number = match profile.timeline.start {
        Start::At(_) => marks.first_from(u64::try_from(since()).unwrap_or(0)),
        Start::Apply | Start::FirstPacket => marks.first_from(0),
    };
    while let Some(first) = marks.at(number) {
        let second = first / SECOND;
        let in_it = |number| marks.at(number).filter(|at| at / SECOND == second);
        for _ in 0..LINES {
            let Some(at) = in_it(number) else { break };
            if !wait(at) {
                return Ok(());
            }
            say(at, &marks.said(number));
            number += 1;
        }
        if in_it(number).is_none() {
            continue;
        }
        let over = (second + 1).saturating_mul(SECOND);
        if !wait(over) {
            return Ok(());
        }
        let more = (number..).take_while(|&number| in_it(number).is_some()).count() as u64;
        say(over, &format!("and {more} more within the last second"));
        number += more;
    }
    Ok(())
}
