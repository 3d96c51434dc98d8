//! Pools that users create, change and delete all the time, and how long each change takes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::try_join_all;
use kube::Client;
use tokio::task::JoinSet;

use super::pool::{Pool, Served};

/// Pools at a time.
const POOLS: u32 = 4;

/// How long people think between two changes of a pool.
const BETWEEN: Duration = Duration::from_secs(1);

/// After so many changes another pool takes its place.
const CHANGES: u32 = 8;

/// Changes that go on until they are told to stop.
pub struct Load {
    began: Instant,
    stop: AtomicBool,
    served: AtomicUsize,
}

/// A change of a pool, or a new one.
#[derive(Clone, Debug)]
pub struct Change {
    /// The pool.
    pub pool: String,
    /// When it was made, since the load began.
    pub at: Duration,
    /// How long it took until new machines had it.
    pub served: Duration,
}

impl Load {
    /// Starts the clock.
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            stop: AtomicBool::new(false),
            served: AtomicUsize::new(0),
        }
    }

    /// How long it has been going on.
    pub fn so_far(&self) -> Duration {
        self.began.elapsed()
    }

    /// Changes that new machines have.
    pub fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }

    /// Ends it when all changes are served and all pools deleted.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Goes on, with pools of this profile, until it is over; tells of all changes.
    ///
    /// # Errors
    /// A change that is not served in five minutes.
    pub async fn run(&self, client: &Client, profile: &str) -> Result<Vec<Change>> {
        let mut watch = JoinSet::new();
        let served = Served::watch(client.clone(), &mut watch);
        let places = (0..POOLS).map(|number| self.place(client, profile, number, served.clone()));
        Ok(try_join_all(places).await?.into_iter().flatten().collect())
    }

    /// There is always a pool, but not for ever the same.
    async fn place(
        &self,
        client: &Client,
        profile: &str,
        number: u32,
        mut served: Served,
    ) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        for generation in 0.. {
            let name = format!("load-{number}-{generation}");
            let mut at = self.so_far();
            let mut pool = Pool::create(client, &name, profile).await?;
            for left in (0..CHANGES).rev() {
                changes.push(Change {
                    pool: name.clone(),
                    at,
                    served: pool.served(&mut served).await?,
                });
                self.served.fetch_add(1, Ordering::Relaxed);
                if left == 0 || self.is_over() {
                    break;
                }
                tokio::time::sleep(BETWEEN).await;
                at = self.so_far();
                pool.change().await?;
            }
            pool.delete().await?;
            if self.is_over() {
                break;
            }
        }
        Ok(changes)
    }
}
