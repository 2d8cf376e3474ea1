"""Walking policies for the collectors: the bodies that learn to walk, the algorithm they learn by, and their record."""
