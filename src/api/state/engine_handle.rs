//! Connection of the API with the dispatch of its process.

use std::sync::Arc;

use tokio::time::Instant;
use uuid::Uuid;

use bellwire_rules::policy::lane_state::LaneState;
use bellwire_store::queue::flows::Flow;
use bellwire_store::queue::sending::Born;
use bellwire_store::queue::stops::Stop;

/// Work that the API passes to this process's dispatch.
#[derive(Debug)]
pub enum Work {
    /// A request may change what is sent: it ends the idle mode.
    Asked,
    /// Something became due: look.
    Due,
    /// Deliveries born leased to this process: send them.
    Born {
        /// Lease of the rows.
        lease: Uuid,
        /// Start of the lease.
        since: Instant,
        /// Rows under the lease.
        rows: Vec<Born>,
    },
    /// To be obeyed before the response goes out.
    Stop(Stop),
    /// Orders to lanes, to be applied before the response.
    Orders(Vec<LaneState>),
    /// Flow control from now on, to be applied before the response.
    Flow(Flow),
}

/// Connection to this process's dispatch. A process without one only writes to the database.
#[derive(Clone)]
pub struct EngineHandle {
    /// Passes work to dispatch.
    pub tell: Arc<dyn Fn(Work) + Send + Sync>,
    /// Returns a fresh lease for sends to single subscriptions, if dispatch has room in memory. [`Work::Born`] returns it, or it
    /// expires if the sends fail.
    pub lease: Arc<dyn Fn() -> Option<Uuid> + Send + Sync>,
}

impl EngineHandle {
    /// For processes without dispatch.
    pub fn none() -> Self {
        Self { tell: Arc::new(|_| {}), lease: Arc::new(|| None) }
    }
}
