"""Pipelines: a model in stages, each in a process of its own, through which parts of a batch go one after another.

    stage = PipelineStage(layers_of_this_process, rank, number_of_processes)
    schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=nn.functional.mse_loss)
    schedule.step(inputs)                     in the first process
    schedule.step(target=targets)             in the last
    schedule.step()                           in between

stage      what a process computes, and what it gets and sends      schedules  in which order
"""

from undertow.distributed.pipelining.schedules import Schedule1F1B as Schedule1F1B
from undertow.distributed.pipelining.schedules import ScheduleGPipe as ScheduleGPipe
from undertow.distributed.pipelining.stage import PipelineStage as PipelineStage
