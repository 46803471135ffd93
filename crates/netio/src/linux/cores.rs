//! proc_loadavg(5) and sched_getaffinity(2).

use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::thread::sched_getaffinity;

/// How many cores the scheduler allows this process.
pub(crate) fn allowed() -> io::Result<usize> {
    Ok(sched_getaffinity(None)?.count() as usize)
}

/// `/proc/loadavg`, opened early: it may be inaccessible later.
#[derive(Clone)]
pub(crate) struct Runnable(Arc<File>);

impl Runnable {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(File::open("/proc/loadavg")?)))
    }

    /// How many threads can run, by the fourth field.
    pub(crate) fn count(&self) -> io::Result<usize> {
        let mut text = [0u8; 64];
        let len = rustix::io::pread(&self.0, &mut text, 0)?;
        let text = std::str::from_utf8(&text[..len]).ok();
        text.and_then(runnable_threads).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

fn runnable_threads(text: &str) -> Option<usize> {
    text.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fourth_field_says_how_many_threads_can_run() {
        assert_eq!(runnable_threads("0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(runnable_threads("0.20 0.18 0.12"), None);
        assert_eq!(runnable_threads(""), None);
        assert!(Runnable::new().unwrap().count().unwrap() >= 1, "this thread runs");
    }
}
