"""Detection of lost workers, coordinators and clients, and the records that outlive them."""
