//! Kernels as users write them, on every device: what compilers of kernels have been seen to get wrong.
//!
//! | module | what it holds |
//! |---|---|
//! | `arithmetic` | operators and functions mean what Rust means by them |
//! | `flush` | kernels that flush subnormal numbers |
//! | `language` | literals, scopes, pointers, parameters of every type |
//! | `operations` | reductions, shapes, conversions |
//! | `flow` | early return, short circuits, branches, loops, swaps |
//! | `loops` | loops that are left early, ranges up to the ends of their dtypes |
//! | `hints` | promises that hold, and ones that do not |
//! | `indices` | loaded indices, bounded in the usual ways |
//! | `products` | matrix products, 8-bit floats |
//! | `batched_words` | batches whose factors are unpacked in the threads that multiply them |
//! | `scaled` | factors with scales and split factors, in loops and outside |
//! | `held_factors` | left factors that outlive an iteration of a loop, beside others that do not |
//! | `kept_factors` | factors that no loop around a product changes |
//! | `running` | scans and atomics |
//! | `subnormal_atomics` | atomic sums of subnormal numbers |
//! | `tiles` | order, elements by index, counts, tiles side by side |
//! | `maps` | closures for single elements, PTX of the kernel's own |
//! | `printing` | what kernels print |
//! | `sizes` | lengths that are prime, one more, one less, zero, near the largest |
//! | `bounds` | accesses out of bounds, failed assertions: reported, suppressed, survived |
//! | `bad_input` | misaligned views, strides of zero, overflow inside a tile, buffers that are gone, kernels too large |
//! | `descriptors` | blocks of tensors: partial, outside, of every rank; padding, atomics, rows by number |
//! | `made_descriptors` | the same of tensors that kernels make themselves |
//! | `stores_in_loops` | blocks of tensors that iterations of a loop store to the same elements; assertions before products |
//! | `joined` | loops that join iterations |
//! | `unrolled` | loops whose variables are constexprs |
//! | `networks` | reshapes to sizes of which only numbers tell that they are whole |
//! | `no_iterations` | products whose loops do not run |
//! | `waiting` | programs that wait for each other, kernels that never end, limits of time |
//! | `launches` | threads, streams, buffers dropped too early, errors for the right reader |
//! | `dependent` | launches that may begin before those before them have ended |
//! | `lints` | launchers under the strictest lints and among shadowing names |
//! | `constants` | constexprs, module constants, `Const` parameters, checks when they are bound |

mod arithmetic;
mod attention;
mod bad_input;
mod batched_words;
mod bounds;
mod constants;
mod dependent;
mod descriptors;
mod flow;
mod flush;
mod held_factors;
mod hints;
mod indices;
mod joined;
mod kept_factors;
mod language;
mod launches;
mod lints;
mod loops;
mod made_descriptors;
mod maps;
mod narrow_offsets;
mod networks;
mod no_iterations;
mod operations;
mod printing;
mod products;
mod random;
mod reductions;
mod running;
mod scaled;
mod sizes;
mod stores_in_loops;
mod subnormal_atomics;
mod tiles;
mod turns;
mod unread_sums;
mod unrolled;
mod upper_halves;
mod waiting;
