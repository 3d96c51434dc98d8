//! Which values the documents are filled with.

use std::fmt;

use osm_render::LateValues;

use crate::model::documents;
use crate::model::gathered::Gathered;
use crate::model::source::SourceError;

/// Everything that a pool's documents are made from besides their content. `Debug` does not show the values.
#[derive(Clone, Default)]
pub struct Inputs {
    pub values: LateValues,
    /// MAC of digest and values; empty where nothing is to be published.
    pub mac: String,
    /// Why the values in use are those of last time.
    pub problem: Option<SourceError>,
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inputs({})", self.mac)
    }
}

/// Takes the values that were gathered. Where they are not available, those of last time serve, so that credentials go on being
/// renewed; but only if they hold everything that the content now refers to, and the settings did not take a value back.
///
/// # Errors
/// Why a value is not available, where there are neither.
pub fn choose(gathered: &Gathered) -> Result<Inputs, SourceError> {
    let config = gathered.config.as_ref();
    let Some((config, rendered)) = config.and_then(|config| Some((config, config.to_publish()?))) else {
        return Ok(Inputs::default());
    };
    let (values, problem) = match &gathered.values {
        Ok(values) => (values.clone(), None),
        Err(problem) => {
            let mut referred = config.late_bound.iter().filter(|late| late.source.is_some());
            let last = gathered
                .memory
                .last_values
                .as_ref()
                .filter(|_| !problem.is_refusal());
            match last.filter(|last| referred.all(|late| last.contains_key(&late.id))) {
                Some(last) => (last.clone(), Some(problem.clone())),
                None => return Err(problem.clone()),
            }
        }
    };
    let mac = documents::inputs_mac(&gathered.key, &rendered.digest, &config.late_bound, &values);
    Ok(Inputs { values, mac, problem })
}
