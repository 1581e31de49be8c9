//! A signal stops a load, which then cleans up; a second one ends the process at once, unless it has an emulation to take down.

use perturb_emulator::signals::at_each_signal;
use perturb_workloads::nfs::Stop;

use crate::cli::exit::INTERRUPTED;

/// Sets `stop` at the first signal. A further one does not end a process that `emulates`: the part that measures has the
/// signal, too, and ends.
pub(super) fn stop_on_signal(stop: Stop, emulates: bool) -> anyhow::Result<()> {
    let mut again = false;
    at_each_signal(move |_| {
        if again && emulates {
            return;
        }
        if again {
            eprintln!("perturb: ended at once; the data set may be left behind");
            std::process::exit(INTERRUPTED.into());
        }
        eprintln!("perturb: stopping, and removing the data set (again: at once)");
        stop.set();
        again = true;
    })
}
