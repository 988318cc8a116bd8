//! Random kernels of Tilewright, run in every way there is and compared.
//!
//! [`generate`] makes a kernel of a seed, [`oracle`] runs it: in the interpreter as it stands, after every pass, placed
//! with adversarial timing, and its PTX thread by thread. [`reduce`] makes a small file of a kernel that differs, and
//! [`campaign`] does this for a range of seeds.

pub mod campaign;
pub mod case;
pub mod facts;
pub mod generate;
pub mod oracle;
pub mod random;
pub mod reduce;
