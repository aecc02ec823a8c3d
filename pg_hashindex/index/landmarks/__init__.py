"""Landmarks: thousands of centres among a table's rows, each row belonging to the nearest."""

from .assignment import Landmarks, ListMeans
from .training import landmark_count, train_landmarks, training_rows

__all__ = ["Landmarks", "ListMeans", "landmark_count", "train_landmarks", "training_rows"]
