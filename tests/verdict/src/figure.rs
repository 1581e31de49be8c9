//! Figures, which other programs can make wrong.

use std::{env, time::Duration};

use anyhow::{Result, anyhow};
use perturb_clock::{BUSY, Watch, stolen_share};

use crate::skip;

/// Says why no figure of this machine is to be judged by its bound, if so. What is not a figure is tested all the same.
const UNFIT: &str = "PERTURB_UNFIT_FOR_FIGURES";

/// Ends what [`thrice`] runs with a figure that is wrong: `bound!(ratio < 1.05, "ratio {ratio}")`.
#[macro_export]
macro_rules! bound {
    ($holds:expr, $($fault:tt)+) => {
        if !$holds {
            return Ok(Some(format!($($fault)+)));
        }
    };
}

/// Measures a figure whose bound is meant for a machine that does nothing else. The fault is `measure`'s answer if the bound
/// is missed; it names the figure. It must be found three times, while others leave the processors alone; else the test is
/// skipped. Errors of `measure` are of another kind: they end the test at once, on any machine.
///
/// # Errors
/// The fault, a skip, or `measure`'s own error.
pub fn thrice(measure: impl Fn() -> Result<Option<String>>) -> Result<()> {
    const TRIES: u32 = 3;
    let mut busiest = 0.0_f64;
    for attempt in 1.. {
        let watch = Watch::start();
        let Some(fault) = measure()? else { return Ok(()) };
        busiest = busiest.max(watch.stolen_share()).max(stolen_share(PROBE));
        println!("    figure: try {attempt} of {TRIES}: {fault}");
        fit()?;
        if attempt == TRIES {
            not_busy(busiest, &fault)?;
            return Err(anyhow!(fault));
        }
    }
    unreachable!("the last attempt has ended")
}

/// For how long [`quiet`] looks.
const PROBE: Duration = Duration::from_millis(500);

/// Whether this machine is much slower than those that tests are written for: it is sent less per second.
#[must_use]
pub fn slow() -> bool {
    env::var_os(UNFIT).is_some()
}

/// Skips a figure on a machine whose figures say nothing.
///
/// # Errors
/// The skip.
pub fn fit() -> Result<()> {
    match env::var(UNFIT) {
        Ok(reason) => Err(skip(reason)),
        Err(_) => Ok(()),
    }
}

/// Skips a figure, which is named, if others take more than a twentieth of a processor now.
///
/// # Errors
/// The skip.
pub fn quiet(figure: &str) -> Result<()> {
    not_busy(stolen_share(PROBE), figure)
}

/// Skips a figure, which is named, if others took more than a twentieth of a processor.
///
/// # Errors
/// The skip.
pub fn not_busy(stolen: f64, figure: &str) -> Result<()> {
    if stolen > BUSY {
        let percent = stolen * 100.0;
        return Err(skip(format!(
            "this machine is busy: others took {percent:.0} % of a processor; {figure}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::Skip;

    #[test]
    fn an_error_is_not_repeated() {
        let tries = Cell::new(0);
        let error = thrice(|| {
            tries.set(tries.get() + 1);
            anyhow::bail!("functional")
        });
        assert_eq!(
            (tries.get(), error.unwrap_err().to_string()),
            (1, "functional".into())
        );
    }

    #[test]
    fn a_figure_that_is_right_once_is_right() {
        let tries = Cell::new(0);
        let found = thrice(|| {
            tries.set(tries.get() + 1);
            bound!(tries.get() > 1, "the first try");
            Ok(None)
        });
        assert!(found.is_ok() || Skip::reason(&found.unwrap_err()).is_some());
    }

    #[test]
    fn a_busy_machine_names_the_figure() {
        let error = not_busy(0.2, "median 5 ms").unwrap_err();
        assert_eq!(
            Skip::reason(&error),
            Some("this machine is busy: others took 20 % of a processor; median 5 ms")
        );
        assert!(not_busy(0.01, "").is_ok());
    }
}
