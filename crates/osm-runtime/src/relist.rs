//! Has every watch of a cluster list everything again.

use std::sync::Arc;

use tokio::sync::watch;

/// Clones share one signal, so each can ask for a list.
#[derive(Clone, Debug, Default)]
pub struct Relist(Arc<watch::Sender<()>>);

impl Relist {
    pub fn now(&self) {
        self.0.send_replace(());
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.0.subscribe()
    }
}
