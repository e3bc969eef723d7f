//! Parallel work on several processors.

use anyhow::Result;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use xshell::Shell;

use crate::workspace::Workspace;

/// The most parallel builds; more would rebuild dependencies more often than they save time.
const MOST: usize = 4;

/// Builds something for each item, in parallel lanes.
///
/// Cargo runs one build of a folder at a time, so each lane has its own shell and folder.
///
/// # Errors
/// Returns the error of the first lane that has one.
pub(crate) fn side_by_side<T: Sync>(
    workspace: &Workspace,
    items: &[T],
    build: impl Fn(&Shell, &Path, &T) -> Result<()> + Sync,
) -> Result<()> {
    let lanes = (0..processors().min(MOST)).map(|lane| {
        let folder = workspace.target().join(format!("lanes/{lane}"));
        (workspace.shell.clone(), folder)
    });
    in_lanes(lanes.collect(), items, |(shell, folder), item| {
        build(shell, folder, item)
    })
}

/// Does the work for each item, in one lane per element of `lanes`.
///
/// After a failure no further item is started.
///
/// # Errors
/// Returns the error of the first lane that has one.
pub(crate) fn in_lanes<L: Send, T: Sync>(
    lanes: Vec<L>,
    items: &[T],
    work: impl Fn(&L, &T) -> Result<()> + Sync,
) -> Result<()> {
    let (next, work) = (&AtomicUsize::new(0), &work);
    thread::scope(|scope| {
        let lanes: Vec<_> = lanes
            .into_iter()
            .map(|own| {
                scope.spawn(move || {
                    while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                        work(&own, item)
                            .inspect_err(|_| next.store(items.len(), Ordering::Relaxed))?;
                    }
                    Ok(())
                })
            })
            .collect();
        lanes
            .into_iter()
            .map(|lane| lane.join().expect("a lane does not panic"))
            .fold(Ok(()), Result::and)
    })
}

/// Returns the number of available processors.
pub(crate) fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn every_item_is_worked_on_once() {
        let workspace = Workspace::load().expect("the workspace");
        let target = workspace.target().to_path_buf();
        let items: Vec<usize> = (0..100).collect();
        let seen = Mutex::new(Vec::new());
        side_by_side(&workspace, &items, |_, folder, item| {
            assert!(folder.starts_with(&target));
            seen.lock().expect("no panic").push(*item);
            Ok(())
        })
        .expect("no failure");
        let mut seen = seen.into_inner().expect("no panic");
        seen.sort_unstable();
        assert_eq!(seen, items);
    }

    #[test]
    fn a_failure_is_reported_and_ends_the_other_lanes() {
        let workspace = Workspace::load().expect("the workspace");
        let begun = AtomicUsize::new(0);
        let items = vec![(); 1000];
        let failed = side_by_side(&workspace, &items, |_, _, ()| {
            if begun.fetch_add(1, Ordering::Relaxed) == 0 {
                bail!("the first");
            }
            thread::yield_now();
            Ok(())
        });
        assert_eq!(failed.expect_err("one failed").to_string(), "the first");
    }
}
