//! What results say of the machine and of the call that made them.

use std::{env, fs, num::NonZero, thread::available_parallelism, time::SystemTime};

use perturb_present::shell;

/// The kernel's release.
pub(crate) fn release() -> String {
    let uname = nix::sys::utsname::uname();
    uname.map_or_else(
        |_| String::new(),
        |name| name.release().to_string_lossy().into_owned(),
    )
}

/// The machine's name.
pub(crate) fn node() -> Option<String> {
    let name = nix::sys::utsname::uname().ok()?;
    Some(name.nodename().to_string_lossy().into_owned())
}

/// The kernel's name and release.
#[must_use]
pub fn kernel() -> String {
    format!("Linux {}", release())
}

/// The processor's name.
#[must_use]
pub fn processor() -> Option<String> {
    line_of("/proc/cpuinfo", "model name")
}

/// How many processors this process may use.
#[must_use]
pub fn processors() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

/// The command's arguments, as a shell reads them.
pub(crate) fn arguments() -> String {
    shell::command(env::args_os().skip(1))
}

/// Seconds since 1970.
pub(crate) fn now_s() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0.0, |time| time.as_secs_f64())
}

/// What follows the colon in the first line of a file of /proc that begins like this.
pub(crate) fn line_of(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
