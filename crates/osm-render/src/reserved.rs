//! Text that no profile, setting or pool may contain.

/// Start of the marker of a late-bound value. An input with it could pass for a marker, so it is refused.
pub const RESERVED_PREFIX: &str = "%%osm-late{";
